"""Full-text search finds and counts within the projects in scope, and nowhere else."""

import pytest
from sqlalchemy import text

from app.store.fulltext import FullText, MemoryFilters, SearchScope, dialects, postings
from app.store.fulltext.postings import PostingsCache
from tests.services import library


@pytest.fixture
def shelf(databases, tmp_path):
    with library.opened(databases, tmp_path) as opened:
        yield opened


def full_text(shelf) -> FullText:
    return dialects.of(shelf.database.dialect)


def phrases(*words: str):
    return (tuple(words),)


def scope(shelf, *project_ids: str) -> SearchScope:
    return SearchScope(shelf.caller.team_id, project_ids or (shelf.project_id,))


def find(shelf, *all_of, **options) -> list[int]:
    in_scope = options.pop("scope", scope(shelf))
    with shelf.database.read() as connection:
        return full_text(shelf).find(connection, in_scope, all_of, **{"limit": 100, **options}).tolist()


def test_phrase_matches_only_in_order(shelf):
    """The words of a phrase must be adjacent and in order."""
    here = shelf.remember("the rate limit was hit")
    shelf.remember("limit the rate")
    assert find(shelf, phrases("rate", "limit")) == [here.seq]


def test_every_term_must_match_in_any_spelling(shelf):
    """A term may have several spellings, one of which must match; all terms must match."""
    both = shelf.remember("alpha beta")
    shelf.remember("alpha")
    assert find(shelf, (("alpha",), ("aleph",)), phrases("beta")) == [both.seq]


@pytest.mark.parametrize("typed", ['"', '""', 'a" OR project:"', "NEAR(", "*", "title:", "^x", "-x", "'"])
def test_query_text_is_never_syntax(shelf, typed):
    """Quotes, operators and column names are plain text."""
    shelf.remember("alpha")
    assert find(shelf, phrases("alpha"), phrases(typed, "gamma")) == []


def test_other_projects_are_never_found(shelf):
    """Only the projects in scope are searched, one or several."""
    other_id = shelf.add_project("other")
    mine, other = shelf.remember("gasket"), shelf.remember("gasket", project_id=other_id)
    assert find(shelf, phrases("gasket")) == [mine.seq]
    both = scope(shelf, shelf.project_id, other_id)
    assert find(shelf, phrases("gasket"), scope=both) == [mine.seq, other.seq]


def test_limit_can_keep_the_first_or_last_hits(shelf):
    """The result is in ascending order either way."""
    rows = shelf.remember_all([{"narrative": f"gasket {number}"} for number in range(5)])
    assert find(shelf, phrases("gasket"), limit=2) == [rows[0].seq, rows[1].seq]
    assert find(shelf, phrases("gasket"), limit=2, newest_first=True) == [rows[3].seq, rows[4].seq]


@pytest.mark.parametrize(
    ("filters", "expected"),
    [
        (MemoryFilters(kinds=("summary",)), ["b"]),
        (MemoryFilters(types=("bugfix", "feature")), ["a", "b"]),
        (MemoryFilters(concepts=("billing",)), ["a"]),
        (MemoryFilters(files=("src/pay",)), ["a"]),
        (MemoryFilters(files=("src/pay/",)), ["a"]),
        (MemoryFilters(files=("src/pay/capture.py",)), ["a"]),
        (MemoryFilters(files=("src/pa",)), []),
        (MemoryFilters(files=("src/pay",), files_exact=True), []),
        (MemoryFilters(platform_source="codex"), ["b"]),
        (MemoryFilters(created_after=2_000), ["b", "c"]),
        (MemoryFilters(created_before=2_000), ["a"]),
        (MemoryFilters(created_after=2_000, created_before=3_000), ["b"]),
        (MemoryFilters(kinds=("summary",), types=("bugfix",)), []),
    ],
)
def test_filters_restrict_hits(shelf, filters, expected):
    """All filters apply in the same query, before the limit."""
    rows = shelf.remember_all(
        [
            {
                "narrative": "gasket a",
                "type": "bugfix",
                "concepts": ["billing"],
                "files_read": ["src/pay/capture.py"],
                "created_at_epoch": 1_000,
            },
            {
                "narrative": "gasket b",
                "type": "feature",
                "kind": "summary",
                "platform_source": "codex",
                "created_at_epoch": 2_000,
            },
            {"narrative": "gasket c", "files_modified": ["docs/readme.md"], "created_at_epoch": 3_000},
        ]
    )
    names = {row.seq: row.narrative.split()[-1] for row in rows}
    assert [names[seq] for seq in find(shelf, phrases("gasket"), filters=filters)] == expected


def test_long_memory_is_one_hit(shelf):
    """However often it contains a word, because a limit counts memories."""
    long = "gasket " + "other words " * 2_500
    rows = shelf.remember_all([{"narrative": f"{number} {long * 2} gasket"} for number in range(3)])
    assert find(shelf, phrases("gasket"), limit=2) == [rows[0].seq, rows[1].seq]
    assert find(shelf, phrases("gasket"), limit=2, newest_first=True) == [rows[1].seq, rows[2].seq]
    with shelf.database.read() as connection:
        counts = full_text(shelf).count(connection, scope(shelf), phrases("gasket"), limit=2)
    assert counts == (2, rows[1].seq)


def test_damaged_list_counts_as_empty(shelf):
    """A row with invalid JSON is still found, but matches no file."""
    row = shelf.remember("gasket", files_read=["a.py"])
    with shelf.database.write() as connection:
        connection.exec_driver_sql("UPDATE memory_items SET files_read = '[\"a.py\"'")
    assert find(shelf, phrases("gasket")) == [row.seq]
    assert find(shelf, phrases("gasket"), filters=MemoryFilters(files=("a.py",))) == []


def test_row_written_by_another_program_is_found(shelf):
    """Plain SQL omits the extra words in `search_text`; the other words are found."""
    row = shelf.remember("original")
    with shelf.database.write() as connection:
        connection.exec_driver_sql("UPDATE memory_items SET narrative = 'rotating gaskets', search_text = NULL")
    assert find(shelf, phrases("gasket")) == [row.seq]


def test_statistics_cover_only_projects_in_scope(shelf):
    """Whatever else is stored."""
    shelf.remember("four", created_at_epoch=5)
    with shelf.database.read() as connection:
        before = full_text(shelf).statistics(connection, scope(shelf))
    shelf.remember("a stranger's words", project_id=shelf.add_project("other"), created_at_epoch=9)
    with shelf.database.read() as connection:
        after = full_text(shelf).statistics(connection, scope(shelf))
    assert before == after
    assert (after.memories, after.characters, after.newest_at_epoch) == (1, 4, 5)


def postings_of(shelf, cache: PostingsCache, *words: str) -> postings.Postings:
    with shelf.database.read() as connection:
        statistics = full_text(shelf).statistics(connection, scope(shelf))
        return cache.get(connection, scope(shelf), statistics, [phrases(*words)])[0]


def test_cached_postings_follow_every_change(shelf):
    """What is cached between requests is never stale."""
    cache = PostingsCache(full_text(shelf))
    first = shelf.remember("gasket")
    assert postings_of(shelf, cache, "gasket").own.tolist() == [first.seq]
    second = shelf.remember("another gasket")
    assert postings_of(shelf, cache, "gasket").own.tolist() == [first.seq, second.seq]
    with shelf.database.write() as connection:
        connection.execute(text("DELETE FROM memory_items WHERE seq = :seq"), {"seq": first.seq})
    assert postings_of(shelf, cache, "gasket").own.tolist() == [second.seq]


def test_cache_size_is_limited(shelf):
    """Evicted postings are read again."""
    row = shelf.remember("alpha beta")
    cache = PostingsCache(full_text(shelf), max_rows=20)
    for word in ("alpha", "beta", "alpha"):
        assert postings_of(shelf, cache, word).own.tolist() == [row.seq]


def test_common_term_is_counted_but_not_listed(shelf, monkeypatch):
    """Above the limit, only the approximate number is known."""
    monkeypatch.setattr(postings, "RARE_ROWS", 10)
    shelf.remember_all([{"narrative": f"gasket {number}"} for number in range(40)])
    common = postings_of(shelf, PostingsCache(full_text(shelf)), "gasket")
    assert common.own is None
    assert common.frequency == 40
