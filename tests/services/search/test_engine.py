"""Keyword search, through the real database."""

from contextlib import closing

import pytest
from sqlalchemy import text

from app.caller import Caller
from app.errors import Forbidden, Invalid
from app.services.operations import fulltext_check
from app.services.projects import sessions
from app.services.search import lexical
from app.services.search.query import SearchParams
from app.store.fulltext import MemoryFilters, postings
from tests.services import library
from tests.store import raw_writer


@pytest.fixture
def shelf(databases, tmp_path):
    with library.opened(databases, tmp_path) as opened:
        yield opened


@pytest.fixture(scope="module")
def shown(databases, tmp_path_factory):
    """A shelf that tests only search."""
    with library.opened(databases, tmp_path_factory.mktemp("shown")) as opened:
        opened.remember_all([{"narrative": narrative} for narrative in SHOWN])
        yield opened


SHOWN = {
    "signing keys now rotate weekly without downtime": [
        "downtime rotate signing",
        "How are the signing keys rotated these days, and was there ever any unicorn downtime?",
        "rotation AND NOT key",
        'rotate OR "keys',
        "SIGNING",
    ],
    "getUserName raised a TypeError in src/payments/capture.py after E_CONN_RESET": [
        "getUserName",
        "user name",
        "username getusername",
        "TypeError",
        "type error",
        "E_CONN_RESET",
        "conn_reset",
        "capture.py",
        "src/payments/capture.py",
        "payments/capture",
    ],
    "the rate-limit of v3.11.4 is 20% too low": ["rate-limit", "rate limit", "v3.11.4", "3.11.4", "20%"],
    "ported the parser from C++ to Rust, C# stays": ["C++", "c++", "C#", "parser (C++)"],
    "数据库连接超时，重启后恢复": ["超时", "超", "数据库", "连接超时怎么办", "恢复"],
    "执行db-vac后释放磁盘": ["vac", "db-vac", "磁盘", "执行db"],
    "サーバーを再起動してメモリリークを直した": ["メモリ", "再起動", "リーク", "ｻｰﾊﾞｰ"],
    "서버를 재시작했다": ["서버", "재시작", "서"],
    "รีสตาร์ทฐานข้อมูล": ["ฐานข้อมูล", "ข้อมูล"],
    "сервер перезапущен после сбоя": ["сервер", "СБОЯ"],
    "إعادة تشغيل الخادم مُحَمَّد": ["الخادم", "محمد"],
    "אתחול השרת": ["השרת"],
    "हिन्दी में लिखा": ["हिन्दी"],
    "Ελληνικά κείμενα": ["ελληνικα", "ΚΕΙΜΕΝΑ"],
    "cafe\u0301 crème brûlée": ["café", "creme", "BRULEE"],
    "ＡＰＩ　キー": ["api", "API", "ＡＰＩ"],
    "die Straße nach İstanbul": ["strasse", "istanbul", "STRASSE"],
    "deployed 🚀 on friday": ["🚀", "🚀🚀"],
}


@pytest.mark.parametrize(
    ("narrative", "query"), [(narrative, query) for narrative, queries in SHOWN.items() for query in queries]
)
def test_query_finds_its_memory_first(shown, narrative, query):
    """Any input is text, in any script and spelling, and finds the memory it is about."""
    assert shown.narratives(query)[0] == narrative


@pytest.mark.parametrize(
    "query",
    [
        "***",
        "()*",
        "\u200b",
        "\x00",
        '"',
        "。、！",
        "zzqx-9931",
        "' OR 1=1 --",
        "   ",
        "\u202e",
        "NEAR(",
        "title:",
        "~~~",
    ],
)
def test_query_without_terms_finds_nothing(shown, query):
    """Punctuation, whitespace and nonsense give empty results, never the newest rows."""
    found = shown.ask(query)
    assert (found.hits, found.next_cursor) == ([], None)


@pytest.mark.parametrize(
    "query", ["x" * 200_000, "word " * 5_000, "(" * 2_000 + "gasket" + ")" * 2_000, "a-" * 3_000, "漢字" * 2_000]
)
def test_huge_query_is_answered_quickly(shown, query):
    """The number of terms is bounded, whatever the input."""
    assert shown.ask(query).duration_ms < 1_000


def test_more_matching_terms_rank_higher_and_extra_terms_exclude_nothing(shelf):
    """Any term matches, and memories are ranked by how much of the query they match."""
    shelf.remember_all([{"narrative": text} for text in ("alpha", "alpha beta gamma", "alpha beta", "unrelated")])
    assert shelf.narratives("alpha beta gamma delta") == ["alpha beta gamma", "alpha beta", "alpha"]


@pytest.mark.parametrize("slip", ["authentcation", "authenticaiton", "authenticatioon", "authentikation"])
def test_misspelt_long_word_is_found(shelf, slip):
    """A long word with one wrong letter still matches, and the snippet shows what was meant."""
    shelf.remember("the authentication of clients")
    shelf.remember("the authors of clients")
    assert shelf.ask(slip).hits[0].snippet == "the <mark>authentication</mark> of clients"


def test_known_word_is_not_corrected(shelf):
    """A word that occurs in a memory is what was meant."""
    shelf.remember_all([{"narrative": "the contract was signed"}, {"narrative": "the contrast was high"}])
    assert shelf.narratives("contract") == ["the contract was signed"]


def test_better_old_memory_ranks_first(shelf):
    """Age only breaks ties."""
    shelf.remember("the gasket was replaced by a copper gasket", created_at_epoch=1)
    shelf.remember("a gasket", created_at_epoch=63_072_000_000)
    assert shelf.narratives("copper gasket")[0] == "the gasket was replaced by a copper gasket"


def test_superseded_memory_ranks_below_its_replacement(shelf):
    """Even if it matches better."""
    new = shelf.remember("the port is 9000")
    shelf.remember("the port is the port 8000", superseded_by=new.id)
    assert shelf.narratives("port")[0] == "the port is 9000"


def test_deleted_or_changed_text_is_no_longer_found(shelf):
    """The next search sees what is stored, whatever was cached by the last."""
    row = shelf.remember("gasket")
    assert shelf.narratives("gasket") == ["gasket"]
    with shelf.database.write() as connection:
        connection.execute(text("UPDATE memory_items SET narrative = 'bearing' WHERE seq = :seq"), {"seq": row.seq})
    assert shelf.narratives("gasket") == []
    assert shelf.narratives("bearing") == ["bearing"]


def test_rebuild_invalidates_the_cache_of_a_damaged_index(shelf, databases, tmp_path):
    """A search of the damaged index must not affect those after its repair."""
    shelf.remember("gasket")
    with closing(raw_writer.connect(databases.owner_url(tmp_path))) as raw:
        raw.empty_full_text()
    assert shelf.narratives("gasket") == []
    fulltext_check.rebuild_full_text(shelf.database, lambda _: None)
    assert shelf.narratives("gasket") == ["gasket"]


def test_rows_of_another_team_change_nothing(shelf):
    """No score, order or snippet depends on what others store."""
    shelf.remember_all([{"narrative": f"gasket {word}"} for word in ("copper", "rubber", "steel")])
    before = shelf.ask("gasket copper", explain=True)
    stranger = shelf.add_team("stranger")
    other = library.Library(shelf.database, stranger, "", shelf.engine)
    project_id = other.add_project("theirs")
    other.remember_all([{"narrative": f"gasket copper {n}", "project_id": project_id} for n in range(300)])
    assert shelf.ask("gasket copper", explain=True).hits == before.hits


def test_project_of_another_team_cannot_be_searched(shelf):
    """A project out of reach is refused as if it did not exist."""
    stranger = shelf.add_team("stranger")
    with pytest.raises(Forbidden):
        shelf.engine.search(shelf.database, stranger, SearchParams(project_ids=(shelf.project_id,), query="gasket"))


def test_key_bound_to_a_project_searches_that_project(shelf):
    """It need not name the project."""
    shelf.remember("gasket")
    bound = Caller(team_id=shelf.caller.team_id, project_id=shelf.project_id)
    assert len(shelf.engine.search(shelf.database, bound, SearchParams(query="gasket")).hits) == 1


def test_several_projects_are_searched_together(shelf):
    """One ranking over all the projects in scope."""
    other_id = shelf.add_project("other")
    shelf.remember("gasket one")
    shelf.remember("gasket two", project_id=other_id)
    assert set(shelf.narratives("gasket", project_ids=(shelf.project_id, other_id))) == {"gasket one", "gasket two"}


def test_filters_are_applied_before_the_limit(shelf, monkeypatch):
    """20 rows match filter and query, so 20 are found, however many better ones the filter excludes."""
    monkeypatch.setattr(postings, "RARE_ROWS", 50)
    monkeypatch.setattr(lexical, "MAX_CANDIDATES", 60)
    rows = [{"narrative": f"gasket gasket {n}", "type": "bugfix"} for n in range(200)]
    rows += [{"narrative": f"the old gasket number {n}", "type": "feature"} for n in range(25)]
    shelf.remember_all(rows)
    found = shelf.ask("gasket", filters=MemoryFilters(types=("feature",)), limit=20)
    assert len(found.hits) == 20
    assert found.next_cursor is not None


def test_search_can_be_limited_to_a_session(shelf):
    """Only memories of the session match."""
    with shelf.database.write() as connection:
        begun = sessions.NewSession(project_id=shelf.project_id, content_session_id="one")
        session, _ = sessions.start(connection, shelf.caller, begun)
    shelf.remember_all([{"narrative": f"gasket {n}", "server_session_id": session.id} for n in range(3)])
    shelf.remember_all([{"narrative": f"another gasket {n}"} for n in range(3)])
    found = shelf.narratives("gasket", filters=MemoryFilters(server_session_id=session.id))
    assert sorted(found) == ["gasket 0", "gasket 1", "gasket 2"]


def test_filter_without_a_query_lists_the_newest(shelf):
    """Without a query, the filtered memories are listed by time."""
    shelf.remember_all([{"narrative": name, "type": "decision", "created_at_epoch": n} for n, name in enumerate("abc")])
    shelf.remember("other")
    found = shelf.ask(None, filters=MemoryFilters(types=("decision",)))
    assert [hit.memory.narrative for hit in found.hits] == ["c", "b", "a"]
    assert (found.strategy, found.hits[0].score, found.hits[0].matched_by) == ("filter_only", 0.0, ())
    assert shelf.narratives("", filters=MemoryFilters(types=("decision",)), order_by="oldest") == ["a", "b", "c"]


def test_search_without_query_and_filter_is_rejected(shelf):
    """There is nothing to search for."""
    with pytest.raises(Invalid):
        shelf.ask(None)


def test_pages_have_every_memory_once_in_one_order(shelf):
    """Page by page is the same ranking as all at once."""
    shelf.remember_all([{"narrative": f"gasket {'copper ' * (n % 3)}{n}"} for n in range(57)])
    whole = [hit.memory.id for hit in shelf.ask("copper gasket", limit=100).hits]
    paged, cursor = [], None
    while True:
        page = shelf.ask("copper gasket", limit=10, cursor=cursor)
        paged += [hit.memory.id for hit in page.hits]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert len(whole) == 57
    assert paged == whole


def test_next_page_continues_after_the_last_hit_when_another_is_deleted(shelf):
    """A deletion between two pages skips no memory and repeats none."""
    shelf.remember_all([{"narrative": f"gasket {n}", "created_at_epoch": n} for n in range(6)])
    first = shelf.ask("gasket", limit=3)
    with shelf.database.write() as connection:
        connection.execute(text("DELETE FROM memory_items WHERE id = :id"), {"id": first.hits[0].memory.id})
    second = shelf.ask("gasket", limit=3, cursor=first.next_cursor)
    seen = [hit.memory.narrative for hit in (*first.hits, *second.hits)]
    assert sorted(seen) == [f"gasket {n}" for n in range(6)]


def test_cursor_is_bound_to_its_query(shelf):
    """The cursor of another search is rejected."""
    shelf.remember_all([{"narrative": f"gasket {n}"} for n in range(5)])
    cursor = shelf.ask("gasket", limit=2).next_cursor
    with pytest.raises(Invalid):
        shelf.ask("gaskets", limit=2, cursor=cursor)


def test_search_can_be_paged_a_thousand_deep(shelf):
    """All matches can be reached, not only the memories whose text was read."""
    shelf.remember_all([{"narrative": f"gasket {n}"} for n in range(1_000)])
    cursor, seen = None, set()
    for _ in range(10):
        page = shelf.ask("gasket", limit=100, cursor=cursor)
        seen |= {hit.memory.id for hit in page.hits}
        cursor = page.next_cursor
    assert len(seen) == 1_000


def test_common_terms_match_when_there_are_no_rare_ones(shelf, monkeypatch):
    """Memories with all of them rank first."""
    monkeypatch.setattr(postings, "RARE_ROWS", 5)
    shelf.remember_all([{"narrative": f"server {n}"} for n in range(30)] + [{"narrative": "the server restart"}])
    shelf.remember_all([{"narrative": f"restart {n}"} for n in range(30)])
    assert shelf.narratives("server restart")[0] == "the server restart"


def test_results_can_be_ordered_by_time(shelf):
    """newest and oldest order the matches."""
    shelf.remember_all([{"narrative": f"gasket {name}", "created_at_epoch": n} for n, name in enumerate("abc")])
    assert shelf.narratives("gasket a", order_by="newest") == ["gasket c", "gasket b", "gasket a"]
    assert shelf.narratives("gasket a", order_by="oldest") == ["gasket a", "gasket b", "gasket c"]


def test_min_score_excludes_lower_scores(shelf):
    """minScore compares with the displayed score."""
    shelf.remember_all([{"narrative": "copper gasket"}, {"narrative": "gasket"}])
    best, other = shelf.ask("copper gasket").hits
    assert 0 < other.score < best.score < 1
    assert shelf.narratives("copper gasket", min_score=best.score) == ["copper gasket"]


def test_hit_is_explained_on_request(shelf):
    """Each retriever's rank, score and weight are returned with explain, and left out without."""
    shelf.remember("gasket")
    (explained,), (plain,) = shelf.ask("gasket", explain=True).hits, shelf.ask("gasket").hits
    assert [(each.retriever, each.rank, each.weight) for each in explained.contributions] == [("keyword", 1, 1.0)]
    assert (plain.contributions, plain.matched_by) == ((), ("keyword",))


def test_same_query_has_the_same_results(shelf):
    """Equal inputs and rows give equal replies."""
    shelf.remember_all([{"narrative": f"gasket {n % 7} copper"} for n in range(50)])
    assert shelf.ask("copper gasket 3").hits == shelf.ask("copper gasket 3").hits


def test_search_is_logged_without_its_query(shelf, logged):
    """One record says how it went, and never what was searched for."""
    shelf.remember("gasket")
    shelf.ask("gasket secret")
    (record,) = logged
    assert (record["event"], record["count"], record["strategy"]) == ("search_performed", 1, "fts")
    assert "secret" not in str(record)
