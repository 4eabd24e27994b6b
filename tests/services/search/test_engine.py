"""Search by words, through the real store."""

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
    """A shelf that tests only ask."""
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


@pytest.mark.parametrize(("narrative", "query"), [(found, query) for found, asked in SHOWN.items() for query in asked])
def test_a_query_finds_its_memory_first(shown, narrative, query):
    """Whatever is typed is text, in any script and spelling, and finds the row it is about."""
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
def test_a_query_about_nothing_finds_nothing(shown, query):
    """Punctuation, blank and nonsense are empty answers, never the newest rows."""
    found = shown.ask(query)
    assert (found.hits, found.next_cursor) == ([], None)


@pytest.mark.parametrize(
    "query", ["x" * 200_000, "word " * 5_000, "(" * 2_000 + "gasket" + ")" * 2_000, "a-" * 3_000, "漢字" * 2_000]
)
def test_a_huge_query_is_answered_quickly(shown, query):
    """Size is bounded by what is asked for, not by what is typed."""
    assert shown.ask(query).duration_ms < 1_000


def test_more_of_the_query_comes_first_and_one_word_too_many_empties_nothing(shelf):
    """Rows are found by any word and ordered by how much of the query they hold."""
    shelf.remember_all([{"narrative": text} for text in ("alpha", "alpha beta gamma", "alpha beta", "unrelated")])
    assert shelf.narratives("alpha beta gamma delta") == ["alpha beta gamma", "alpha beta", "alpha"]


@pytest.mark.parametrize("slip", ["authentcation", "authenticaiton", "authenticatioon", "authentikation"])
def test_a_long_word_with_a_slip_is_found(shelf, slip):
    """One letter wrong in a long word still finds it, and the snippet shows what was meant."""
    shelf.remember("the authentication of clients")
    shelf.remember("the authors of clients")
    assert shelf.ask(slip).hits[0].snippet == "the <mark>authentication</mark> of clients"


def test_a_word_that_is_known_is_not_corrected(shelf):
    """What stands in a memory is what was meant."""
    shelf.remember_all([{"narrative": "the contract was signed"}, {"narrative": "the contrast was high"}])
    assert shelf.narratives("contract") == ["the contract was signed"]


def test_an_old_memory_that_answers_comes_first(shelf):
    """Age breaks ties only."""
    shelf.remember("the gasket was replaced by a copper gasket", created_at_epoch=1)
    shelf.remember("a gasket", created_at_epoch=63_072_000_000)
    assert shelf.narratives("copper gasket")[0] == "the gasket was replaced by a copper gasket"


def test_a_replaced_memory_stands_below_its_replacement(shelf):
    """What was superseded comes after what replaced it."""
    new = shelf.remember("the port is 9000")
    shelf.remember("the port is the port 8000", superseded_by=new.id)
    assert shelf.narratives("port")[0] == "the port is 9000"


def test_what_is_deleted_or_changed_is_found_no_more(shelf):
    """The next search sees what is stored, whatever was remembered from the last."""
    row = shelf.remember("gasket")
    assert shelf.narratives("gasket") == ["gasket"]
    with shelf.database.write() as connection:
        connection.execute(text("UPDATE memory_items SET narrative = 'bearing' WHERE seq = :seq"), {"seq": row.seq})
    assert shelf.narratives("gasket") == []
    assert shelf.narratives("bearing") == ["bearing"]


def test_a_rebuild_ends_what_was_remembered_of_a_damaged_index(shelf, databases, tmp_path):
    """A search of the damaged index must not decide those after its repair."""
    shelf.remember("gasket")
    with closing(raw_writer.connect(databases.owner_url(tmp_path))) as raw:
        raw.empty_full_text()
    assert shelf.narratives("gasket") == []
    fulltext_check.rebuild_full_text(shelf.database, lambda _: None)
    assert shelf.narratives("gasket") == ["gasket"]


def test_another_teams_rows_change_nothing(shelf):
    """No score, order or snippet depends on what others store."""
    shelf.remember_all([{"narrative": f"gasket {word}"} for word in ("copper", "rubber", "steel")])
    before = shelf.ask("gasket copper", explain=True)
    stranger = shelf.add_team("stranger")
    other = library.Library(shelf.database, stranger, "", shelf.searching)
    project_id = other.add_project("theirs")
    other.remember_all([{"narrative": f"gasket copper {n}", "project_id": project_id} for n in range(300)])
    assert shelf.ask("gasket copper", explain=True).hits == before.hits


def test_another_teams_project_cannot_be_asked(shelf):
    """A project out of reach is refused as if it were not there."""
    stranger = shelf.add_team("stranger")
    with pytest.raises(Forbidden):
        shelf.searching.search(shelf.database, stranger, SearchParams(project_ids=(shelf.project_id,), query="gasket"))


def test_a_project_key_asks_its_own_project(shelf):
    """Who is bound to a project need not name it."""
    shelf.remember("gasket")
    bound = Caller(team_id=shelf.caller.team_id, project_id=shelf.project_id)
    assert len(shelf.searching.search(shelf.database, bound, SearchParams(query="gasket")).hits) == 1


def test_several_projects_are_asked_together(shelf):
    """One ranking over all the projects named."""
    other_id = shelf.add_project("other")
    shelf.remember("gasket one")
    shelf.remember("gasket two", project_id=other_id)
    assert set(shelf.narratives("gasket", project_ids=(shelf.project_id, other_id))) == {"gasket one", "gasket two"}


def test_a_filter_is_applied_before_the_cut(shelf, monkeypatch):
    """20 rows match filter and query, so 20 are found, however many better ones the filter keeps out."""
    monkeypatch.setattr(postings, "RARE_ROWS", 50)
    monkeypatch.setattr(lexical, "MAX_CANDIDATES", 60)
    rows = [{"narrative": f"gasket gasket {n}", "type": "bugfix"} for n in range(200)]
    rows += [{"narrative": f"the old gasket number {n}", "type": "feature"} for n in range(25)]
    shelf.remember_all(rows)
    found = shelf.ask("gasket", filters=MemoryFilters(types=("feature",)), limit=20)
    assert len(found.hits) == 20
    assert found.next_cursor is not None


def test_a_session_can_be_searched_alone(shelf):
    """Only what was learned in the session answers."""
    with shelf.database.write() as connection:
        begun = sessions.NewSession(project_id=shelf.project_id, content_session_id="one")
        session, _ = sessions.start(connection, shelf.caller, begun)
    shelf.remember_all([{"narrative": f"gasket {n}", "server_session_id": session.id} for n in range(3)])
    shelf.remember_all([{"narrative": f"another gasket {n}"} for n in range(3)])
    found = shelf.narratives("gasket", filters=MemoryFilters(server_session_id=session.id))
    assert sorted(found) == ["gasket 0", "gasket 1", "gasket 2"]


def test_a_filter_alone_lists_the_newest(shelf):
    """Without a query the filtered rows come by time."""
    shelf.remember_all([{"narrative": name, "type": "decision", "created_at_epoch": n} for n, name in enumerate("abc")])
    shelf.remember("other")
    found = shelf.ask(None, filters=MemoryFilters(types=("decision",)))
    assert [hit.memory.narrative for hit in found.hits] == ["c", "b", "a"]
    assert (found.strategy, found.hits[0].score, found.hits[0].matched_by) == ("filter_only", 0.0, ())
    assert shelf.narratives("", filters=MemoryFilters(types=("decision",)), order_by="oldest") == ["a", "b", "c"]


def test_neither_query_nor_filter_is_refused(shelf):
    """There is nothing to search for."""
    with pytest.raises(Invalid):
        shelf.ask(None)


def test_pages_hold_every_row_once_in_one_order(shelf):
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


def test_a_page_goes_on_behind_the_last_row_when_another_goes(shelf):
    """A row deleted between two pages makes none skipped and none shown twice."""
    shelf.remember_all([{"narrative": f"gasket {n}", "created_at_epoch": n} for n in range(6)])
    first = shelf.ask("gasket", limit=3)
    with shelf.database.write() as connection:
        connection.execute(text("DELETE FROM memory_items WHERE id = :id"), {"id": first.hits[0].memory.id})
    second = shelf.ask("gasket", limit=3, cursor=first.next_cursor)
    seen = [hit.memory.narrative for hit in (*first.hits, *second.hits)]
    assert sorted(seen) == [f"gasket {n}" for n in range(6)]


def test_a_cursor_holds_for_its_own_query(shelf):
    """A cursor of another search is refused."""
    shelf.remember_all([{"narrative": f"gasket {n}"} for n in range(5)])
    cursor = shelf.ask("gasket", limit=2).next_cursor
    with pytest.raises(Invalid):
        shelf.ask("gaskets", limit=2, cursor=cursor)


def test_a_search_can_be_paged_a_thousand_deep(shelf):
    """Everything that matches can be reached, not only the rows whose text was read."""
    shelf.remember_all([{"narrative": f"gasket {n}"} for n in range(1_000)])
    cursor, seen = None, set()
    for _ in range(10):
        page = shelf.ask("gasket", limit=100, cursor=cursor)
        seen |= {hit.memory.id for hit in page.hits}
        cursor = page.next_cursor
    assert len(seen) == 1_000


def test_a_word_of_every_memory_still_finds(shelf, monkeypatch):
    """Common words find when there is nothing rarer to go by, those with all of them first."""
    monkeypatch.setattr(postings, "RARE_ROWS", 5)
    shelf.remember_all([{"narrative": f"server {n}"} for n in range(30)] + [{"narrative": "the server restart"}])
    shelf.remember_all([{"narrative": f"restart {n}"} for n in range(30)])
    assert shelf.narratives("server restart")[0] == "the server restart"


def test_results_can_be_ordered_by_time(shelf):
    """newest and oldest order what was found."""
    shelf.remember_all([{"narrative": f"gasket {name}", "created_at_epoch": n} for n, name in enumerate("abc")])
    assert shelf.narratives("gasket a", order_by="newest") == ["gasket c", "gasket b", "gasket a"]
    assert shelf.narratives("gasket a", order_by="oldest") == ["gasket a", "gasket b", "gasket c"]


def test_a_least_score_keeps_the_rest_out(shelf):
    """minScore compares with the score that is shown."""
    shelf.remember_all([{"narrative": "copper gasket"}, {"narrative": "gasket"}])
    best, other = shelf.ask("copper gasket").hits
    assert 0 < other.score < best.score < 1
    assert shelf.narratives("copper gasket", min_score=best.score) == ["copper gasket"]


def test_a_hit_explains_itself_when_asked(shelf):
    """Each leg's rank, score and weight are told with explain, and left out without."""
    shelf.remember("gasket")
    (explained,), (plain,) = shelf.ask("gasket", explain=True).hits, shelf.ask("gasket").hits
    assert [(share.leg, share.rank, share.weight) for share in explained.shares] == [("keyword", 1, 1.0)]
    assert (plain.shares, plain.matched_by) == ((), ("keyword",))


def test_the_same_question_has_the_same_answer(shelf):
    """Equal inputs and rows give equal replies."""
    shelf.remember_all([{"narrative": f"gasket {n % 7} copper"} for n in range(50)])
    assert shelf.ask("copper gasket 3").hits == shelf.ask("copper gasket 3").hits


def test_a_search_is_logged_without_its_words(shelf, logged):
    """One record tells how it went, and never what was asked."""
    shelf.remember("gasket")
    shelf.ask("gasket secret")
    (record,) = logged
    assert (record["event"], record["count"], record["strategy"]) == ("search_performed", 1, "fts")
    assert "secret" not in str(record)
