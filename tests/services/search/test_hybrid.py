"""Search by words and meaning together, over a real vector index."""

import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager

import pytest

from app.services.search.engine import SearchEngine
from app.services.search.query import SearchParams
from app.services.search.results import SearchResults
from app.store.database import Database
from app.store.fulltext import MemoryFilters, dialects
from app.vectors.index import Choice, VectorIndex
from tests.vectors.library import Library, opened

PORTS = "Deployments were moved to a container orchestrator"
KEYS = "Signing keys rotate weekly without downtime"
CAKE = "We baked an apple cake for the birthday"
CHINESE = "数据库连接超时，重启后恢复"


@pytest.fixture(scope="module")
def shelf(databases, tmp_path_factory):
    """A library with an index in step; tests only ask it."""
    with opened(databases, tmp_path_factory.mktemp("hybrid")) as library:
        for narrative in (PORTS, KEYS, CAKE, CHINESE, *(f"Meeting note number {n}" for n in range(40))):
            library.add(narrative=narrative)
        library.index.mirror.drain()
        yield library


@pytest.fixture
def own(databases, tmp_path):
    """A library that a test changes."""
    with opened(databases, tmp_path) as library:
        yield library


def ask(shelf: Library, query: str, **options) -> SearchResults:
    index = options.pop("index", shelf.index)
    searching = SearchEngine(dialects.of(shelf.database.dialect), recency_half_life_days=90.0, index=index)
    params = SearchParams(**{"project_ids": (shelf.project_id,), "query": query, **options})
    with closing(searching):
        return searching.search(shelf.database, shelf.caller, params)


def narratives(found: SearchResults) -> list[str | None]:
    return [hit.memory.narrative for hit in found.hits]


def test_a_paraphrase_is_found_by_its_meaning(shelf):
    """A question that shares no word with its answer finds it."""
    found = ask(shelf, "kubernetes migration")
    assert narratives(found)[0] == PORTS
    assert found.hits[0].matched_by == ("semantic",)
    assert (found.strategy, found.degraded, found.chroma_available) == ("hybrid", False, True)


def test_both_legs_explain_themselves(shelf):
    """Rank, score and weight of each leg are told, and the weights make a whole."""
    shares = ask(shelf, "rotating the signing keys", explain=True).hits[0].shares
    assert [(share.leg, share.rank) for share in shares] == [("keyword", 1), ("semantic", 1)]
    assert sum(share.weight for share in shares) == pytest.approx(1.0)


def test_a_script_that_the_model_cannot_read_is_found_by_words(shelf):
    """An English model's cosines of Chinese text outvote no exact hit, and find nothing by themselves."""
    found = ask(shelf, "连接超时")
    assert narratives(found) == [CHINESE]


@pytest.mark.parametrize("query", ["zzqx-9931", "blorptastic fnord", "***", "", "quantum chromodynamics lattice"])
def test_a_question_about_something_else_finds_nothing(shelf, query):
    """The nearest of unrelated memories is no answer."""
    assert ask(shelf, query).hits == []


def test_words_alone_can_be_asked_for(shelf):
    """keyword leaves the index alone."""
    found = ask(shelf, "kubernetes migration", mode="keyword")
    assert (found.hits, found.strategy, found.degraded) == ([], "fts", False)


def test_meaning_alone_can_be_asked_for(shelf):
    """semantic orders by nearness."""
    found = ask(shelf, "birthday dessert", mode="semantic")
    assert (narratives(found)[0], found.strategy) == (CAKE, "chroma")


def test_pages_hold_every_row_once(shelf):
    """Paging goes through one ranking of both legs and the words behind them."""
    whole = [hit.memory.id for hit in ask(shelf, "meeting note", limit=100).hits]
    paged, cursor = [], None
    while cursor is not None or not paged:
        page = ask(shelf, "meeting note", limit=7, cursor=cursor)
        paged += [hit.memory.id for hit in page.hits]
        cursor = page.next_cursor
        if cursor is None:
            break
    assert paged == whole
    assert len(whole) >= 40


def test_a_filter_is_applied_before_the_cut(own):
    """Nearer rows that the filter keeps out take no place from farther ones that it lets through."""
    for number in range(150):
        own.add(narrative=f"kubernetes cluster migration {number}", concepts=["near"])
    for number in range(6):
        own.add(narrative=f"{PORTS} {number}", concepts=["far"])
    own.index.mirror.drain()
    query = "migration of kubernetes containers"
    assert not {PORTS} & {n[: len(PORTS)] for n in narratives(ask(own, query, mode="semantic", limit=100))}
    found = ask(own, query, mode="semantic", filters=MemoryFilters(concepts=("far",)), limit=6)
    assert len(found.hits) == 6


def test_an_answer_stands_above_its_question(own):
    """Who asks what somebody else has asked wants the answer."""
    for number in range(10):
        own.add(narrative=f"Meeting note number {number}")
    own.add(narrative="Which gasket leaks at the copper pump?\n", facts=["asked on Monday"])
    own.add(narrative="Small gasket leaks at the copper pump", created_at_epoch=1)
    own.index.mirror.drain()
    assert narratives(ask(own, "which gasket leaks at the copper pump"))[0] == "Small gasket leaks at the copper pump"


def test_a_deleted_memory_is_not_found_though_the_index_holds_it(own):
    """Rows are SQL's: what the index still knows decides nothing."""
    memory_id = own.add(narrative=PORTS)
    own.index.mirror.drain()
    own.remove(memory_id)
    assert ask(own, "kubernetes migration").hits == []


def test_another_projects_memory_is_not_found(own):
    """Only the asked project answers."""
    own.add(narrative=PORTS, project_id=own.new_project("other"))
    own.index.mirror.drain()
    assert ask(own, "kubernetes migration").hits == []


@contextmanager
def index_at(own: Library, url: str) -> Iterator[VectorIndex]:
    choice = Choice(mode="http", folder=own.folder, url=url, embedder=own.embedder)
    with closing(VectorIndex(own.database, choice)) as index:
        yield index


@pytest.fixture
def hanging_url() -> Iterator[str]:
    """A port that accepts and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_without_an_index_words_answer(own):
    """When nobody answers at the index, the reply says so and holds what words find."""
    own.add(narrative=KEYS)
    with index_at(own, "http://127.0.0.1:9") as index:
        found = ask(own, "signing keys", index=index)
    assert narratives(found) == [KEYS]
    assert (found.strategy, found.degraded, found.chroma_available) == ("fts", True, False)
    assert (found.fallback_reason, found.notice is None) == ("chroma_connection", False)


def test_an_index_that_hangs_is_waited_for_two_seconds(own, hanging_url):
    """Then words answer, and the reply names the reason."""
    own.add(narrative=KEYS)
    with index_at(own, hanging_url) as index:
        found = ask(own, "signing keys", index=index)
    assert (narratives(found), found.fallback_reason) == ([KEYS], "chroma_timeout")
    assert found.duration_ms < 3_000


def test_who_waits_for_the_index_holds_no_connection(own, hanging_url):
    """A search that waits keeps nobody from the database: with its only connection, another one is answered at once."""
    own.add(narrative=KEYS)
    with (
        closing(Database(own.database.url, readers=1)) as single,
        index_at(own, hanging_url) as index,
        closing(SearchEngine(dialects.of(single.dialect), recency_half_life_days=90.0, index=index)) as searching,
        ThreadPoolExecutor(1) as other,
    ):
        params = SearchParams(project_ids=(own.project_id,), query="signing keys")
        waiting = other.submit(searching.search, single, own.caller, params)
        time.sleep(0.2)  # by now it has done its reading
        words_alone = SearchParams(project_ids=(own.project_id,), query="signing keys", mode="keyword")
        found = searching.search(single, own.caller, words_alone)
        is_waiting = not waiting.done()
    assert is_waiting
    assert narratives(found) == [KEYS]


def test_a_server_without_vectors_is_not_degraded(own):
    """Words alone are a choice then, and a question for meaning is told so."""
    own.add(narrative=KEYS)
    found = ask(own, "signing keys", index=None)
    assert (narratives(found), found.strategy, found.degraded, found.notice) == ([KEYS], "fts", False, None)
    assert ask(own, "signing keys", index=None, mode="semantic").notice is not None


def test_an_index_that_is_late_is_told(own):
    """Entries that have waited for more than a minute make the answer incomplete."""
    own.add(narrative=KEYS)
    own.index.mirror.drain()
    own.add(narrative=PORTS)
    with own.database.write() as connection:
        connection.exec_driver_sql("UPDATE vector_outbox SET enqueued_at_epoch = 1")
    found = ask(own, "signing keys")
    assert (found.strategy, found.degraded, found.fallback_reason) == ("hybrid", True, "index_behind")
