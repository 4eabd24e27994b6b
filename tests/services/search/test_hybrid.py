"""Hybrid search over a real vector index."""

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
from app.vectors.index import VectorIndex, VectorIndexConfig
from tests.vectors.library import Library, opened

PORTS = "Deployments were moved to a container orchestrator"
KEYS = "Signing keys rotate weekly without downtime"
CAKE = "We baked an apple cake for the birthday"
CHINESE = "数据库连接超时，重启后恢复"


@pytest.fixture(scope="module")
def shelf(databases, tmp_path_factory):
    """A library with an up-to-date index; tests only search it."""
    with opened(databases, tmp_path_factory.mktemp("hybrid")) as library:
        for narrative in (PORTS, KEYS, CAKE, CHINESE, *(f"Meeting note number {n}" for n in range(40))):
            library.add(narrative=narrative)
        library.index.mirror.drain()
        yield library


@pytest.fixture
def own(databases, tmp_path):
    """A library that a test may change."""
    with opened(databases, tmp_path) as library:
        yield library


def ask(shelf: Library, query: str, **options) -> SearchResults:
    index = options.pop("index", shelf.index)
    engine = SearchEngine(dialects.of(shelf.database.dialect), recency_half_life_days=90.0, index=index)
    params = SearchParams(**{"project_ids": (shelf.project_id,), "query": query, **options})
    with closing(engine):
        return engine.search(shelf.database, shelf.caller, params)


def narratives(results: SearchResults) -> list[str | None]:
    return [hit.memory.narrative for hit in results.hits]


def test_paraphrase_is_found_by_its_meaning(shelf):
    """A question that shares no word with its answer finds it."""
    results = ask(shelf, "kubernetes migration")
    assert narratives(results)[0] == PORTS
    assert results.hits[0].matched_by == ("semantic",)
    assert (results.strategy, results.degraded, results.chroma_available) == ("hybrid", False, True)


def test_explain_shows_both_retrievers(shelf):
    """Rank, score and weight of each are returned, and the weights add up to 1."""
    contributions = ask(shelf, "rotating the signing keys", explain=True).hits[0].contributions
    assert [(each.retriever, each.rank) for each in contributions] == [("keyword", 1), ("semantic", 1)]
    assert sum(each.weight for each in contributions) == pytest.approx(1.0)


def test_script_the_model_cannot_read_is_found_by_keyword(shelf):
    """The cosines an English model gives Chinese text outvote no exact match, and find nothing on their own."""
    results = ask(shelf, "连接超时")
    assert narratives(results) == [CHINESE]


@pytest.mark.parametrize("query", ["zzqx-9931", "blorptastic fnord", "***", "", "quantum chromodynamics lattice"])
def test_query_about_something_else_finds_nothing(shelf, query):
    """The closest of unrelated memories is not a match."""
    assert ask(shelf, query).hits == []


def test_keyword_mode_ignores_the_index(shelf):
    """keyword finds no paraphrase."""
    results = ask(shelf, "kubernetes migration", mode="keyword")
    assert (results.hits, results.strategy, results.degraded) == ([], "fts", False)


def test_semantic_mode_ranks_by_similarity(shelf):
    """semantic ignores words."""
    results = ask(shelf, "birthday dessert", mode="semantic")
    assert (narratives(results)[0], results.strategy) == (CAKE, "chroma")


def test_pages_have_every_memory_once(shelf):
    """Paging goes through one ranking of fused candidates and of the lexical ones below them."""
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


def test_filters_are_applied_before_the_limit(own):
    """Closer memories that the filter excludes take no room from more distant ones that pass it."""
    for number in range(150):
        own.add(narrative=f"kubernetes cluster migration {number}", concepts=["near"])
    for number in range(6):
        own.add(narrative=f"{PORTS} {number}", concepts=["far"])
    own.index.mirror.drain()
    query = "migration of kubernetes containers"
    assert not {PORTS} & {n[: len(PORTS)] for n in narratives(ask(own, query, mode="semantic", limit=100))}
    results = ask(own, query, mode="semantic", filters=MemoryFilters(concepts=("far",)), limit=6)
    assert len(results.hits) == 6


def test_answer_ranks_above_its_question(own):
    """A user who repeats somebody's question wants the answer."""
    for number in range(10):
        own.add(narrative=f"Meeting note number {number}")
    own.add(narrative="Which gasket leaks at the copper pump?\n", facts=["asked on Monday"])
    own.add(narrative="Small gasket leaks at the copper pump", created_at_epoch=1)
    own.index.mirror.drain()
    assert narratives(ask(own, "which gasket leaks at the copper pump"))[0] == "Small gasket leaks at the copper pump"


def test_deleted_memory_is_not_found_even_if_still_indexed(own):
    """The database decides which memories exist, not the index."""
    memory_id = own.add(narrative=PORTS)
    own.index.mirror.drain()
    own.remove(memory_id)
    assert ask(own, "kubernetes migration").hits == []


def test_memory_of_another_project_is_not_found(own):
    """Only the projects in scope are searched."""
    own.add(narrative=PORTS, project_id=own.new_project("other"))
    own.index.mirror.drain()
    assert ask(own, "kubernetes migration").hits == []


@contextmanager
def index_at(own: Library, url: str) -> Iterator[VectorIndex]:
    choice = VectorIndexConfig(mode="http", folder=own.folder, url=url, embedder=own.embedder)
    with closing(VectorIndex(own.database, choice)) as index:
        yield index


@pytest.fixture
def hanging_url() -> Iterator[str]:
    """A port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def test_search_falls_back_to_keywords_without_an_index(own):
    """When the index does not respond, the reply says so and has the keyword matches."""
    own.add(narrative=KEYS)
    with index_at(own, "http://127.0.0.1:9") as index:
        results = ask(own, "signing keys", index=index)
    assert narratives(results) == [KEYS]
    assert (results.strategy, results.degraded, results.chroma_available) == ("fts", True, False)
    assert (results.fallback_reason, results.notice is None) == ("chroma_connection", False)


def test_hanging_index_times_out_after_two_seconds(own, hanging_url):
    """Then the keyword matches are returned, and the reply names the reason."""
    own.add(narrative=KEYS)
    with index_at(own, hanging_url) as index:
        results = ask(own, "signing keys", index=index)
    assert (narratives(results), results.fallback_reason) == ([KEYS], "chroma_timeout")
    assert results.duration_ms < 3_000


def test_waiting_for_the_index_holds_no_connection(own, hanging_url):
    """With a single database connection, another search is answered at once while the first one waits."""
    own.add(narrative=KEYS)
    with (
        closing(Database(own.database.url, readers=1)) as single,
        index_at(own, hanging_url) as index,
        closing(SearchEngine(dialects.of(single.dialect), recency_half_life_days=90.0, index=index)) as engine,
        ThreadPoolExecutor(1) as other,
    ):
        params = SearchParams(project_ids=(own.project_id,), query="signing keys")
        waiting = other.submit(engine.search, single, own.caller, params)
        time.sleep(0.2)  # by now it has done its reading
        keyword_only = SearchParams(project_ids=(own.project_id,), query="signing keys", mode="keyword")
        results = engine.search(single, own.caller, keyword_only)
        is_waiting = not waiting.done()
    assert is_waiting
    assert narratives(results) == [KEYS]


def test_server_without_vectors_is_not_degraded(own):
    """Keyword search is a choice then, and a semantic search gets a notice."""
    own.add(narrative=KEYS)
    results = ask(own, "signing keys", index=None)
    assert (narratives(results), results.strategy, results.degraded, results.notice) == ([KEYS], "fts", False, None)
    assert ask(own, "signing keys", index=None, mode="semantic").notice is not None


def test_late_index_is_reported(own):
    """Entries that have waited for more than a minute make the results incomplete."""
    own.add(narrative=KEYS)
    own.index.mirror.drain()
    own.add(narrative=PORTS)
    with own.database.write() as connection:
        connection.exec_driver_sql("UPDATE vector_outbox SET enqueued_at_epoch = 1")
    results = ask(own, "signing keys")
    assert (results.strategy, results.degraded, results.fallback_reason) == ("hybrid", True, "index_behind")
