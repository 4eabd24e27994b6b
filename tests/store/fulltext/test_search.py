"""What full text finds and counts, inside the asked projects only."""

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


def found(shelf, *all_of, **options) -> list[int]:
    asked = options.pop("scope", scope(shelf))
    with shelf.database.read() as connection:
        return full_text(shelf).find(connection, asked, all_of, **{"limit": 100, **options}).tolist()


def test_a_phrase_is_found_only_in_its_order(shelf):
    """Words of a phrase stand beside each other, in order."""
    here = shelf.remember("the rate limit was hit")
    shelf.remember("limit the rate")
    assert found(shelf, phrases("rate", "limit")) == [here.seq]


def test_all_of_needs_each_and_any_of_needs_one(shelf):
    """A term may be spelt in several ways, and several terms must all be there."""
    both = shelf.remember("alpha beta")
    shelf.remember("alpha")
    assert found(shelf, (("alpha",), ("aleph",)), phrases("beta")) == [both.seq]


@pytest.mark.parametrize("typed", ['"', '""', 'a" OR project:"', "NEAR(", "*", "title:", "^x", "-x", "'"])
def test_nothing_that_is_typed_is_syntax(shelf, typed):
    """Quotes, operators and column names are text."""
    shelf.remember("alpha")
    assert found(shelf, phrases("alpha"), phrases(typed, "gamma")) == []


def test_another_project_is_never_found(shelf):
    """Only the asked projects answer, also beside each other."""
    other_id = shelf.add_project("other")
    mine, other = shelf.remember("gasket"), shelf.remember("gasket", project_id=other_id)
    assert found(shelf, phrases("gasket")) == [mine.seq]
    both = scope(shelf, shelf.project_id, other_id)
    assert found(shelf, phrases("gasket"), scope=both) == [mine.seq, other.seq]


def test_the_last_ones_can_be_asked_for(shelf):
    """With a limit, either end of the list can be had; it ascends all the same."""
    rows = shelf.remember_all([{"narrative": f"gasket {number}"} for number in range(5)])
    assert found(shelf, phrases("gasket"), limit=2) == [rows[0].seq, rows[1].seq]
    assert found(shelf, phrases("gasket"), limit=2, newest_first=True) == [rows[3].seq, rows[4].seq]


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
def test_filters_limit_what_is_found(shelf, filters, expected):
    """Every filter holds in the same query, before any limit."""
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
    assert [names[seq] for seq in found(shelf, phrases("gasket"), filters=filters)] == expected


def test_a_long_memory_counts_once(shelf):
    """However often and wherever a word stands in it: a limit is one of memories."""
    long = "gasket " + "other words " * 2_500
    rows = shelf.remember_all([{"narrative": f"{number} {long * 2} gasket"} for number in range(3)])
    assert found(shelf, phrases("gasket"), limit=2) == [rows[0].seq, rows[1].seq]
    assert found(shelf, phrases("gasket"), limit=2, newest_first=True) == [rows[1].seq, rows[2].seq]
    with shelf.database.read() as connection:
        counted = full_text(shelf).count(connection, scope(shelf), phrases("gasket"), limit=2)
    assert counted == (2, rows[1].seq)


def test_a_damaged_list_is_an_empty_one(shelf):
    """A row whose JSON is broken is still found, and matches no file."""
    row = shelf.remember("gasket", files_read=["a.py"])
    with shelf.database.write() as connection:
        connection.exec_driver_sql("UPDATE memory_items SET files_read = '[\"a.py\"'")
    assert found(shelf, phrases("gasket")) == [row.seq]
    assert found(shelf, phrases("gasket"), filters=MemoryFilters(files=("a.py",))) == []


def test_a_row_of_another_program_is_found_by_its_words(shelf):
    """Who writes with plain SQL leaves the extra words out, and is found by the others."""
    row = shelf.remember("original")
    with shelf.database.write() as connection:
        connection.exec_driver_sql("UPDATE memory_items SET narrative = 'rotating gaskets', search_text = NULL")
    assert found(shelf, phrases("gasket")) == [row.seq]


def test_holdings_count_the_asked_projects_alone(shelf):
    """Statistics are those of the asked projects, whatever else is stored."""
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


def test_remembered_postings_follow_every_change(shelf):
    """What is remembered between requests is never out of date."""
    cache = PostingsCache(full_text(shelf))
    first = shelf.remember("gasket")
    assert postings_of(shelf, cache, "gasket").own.tolist() == [first.seq]
    second = shelf.remember("another gasket")
    assert postings_of(shelf, cache, "gasket").own.tolist() == [first.seq, second.seq]
    with shelf.database.write() as connection:
        connection.execute(text("DELETE FROM memory_items WHERE seq = :seq"), {"seq": first.seq})
    assert postings_of(shelf, cache, "gasket").own.tolist() == [second.seq]


def test_a_cache_forgets_what_it_has_no_room_for(shelf):
    """Its size is bounded, and what was forgotten is read again."""
    row = shelf.remember("alpha beta")
    cache = PostingsCache(full_text(shelf), max_rows=20)
    for word in ("alpha", "beta", "alpha"):
        assert postings_of(shelf, cache, word).own.tolist() == [row.seq]


def test_a_common_term_is_counted_and_not_listed(shelf, monkeypatch):
    """Beyond the limit only about how many there are is known."""
    monkeypatch.setattr(postings, "RARE_ROWS", 10)
    shelf.remember_all([{"narrative": f"gasket {number}"} for number in range(40)])
    common = postings_of(shelf, PostingsCache(full_text(shelf)), "gasket")
    assert common.own is None
    assert common.frequency == 40
