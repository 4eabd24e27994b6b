"""What is related by meaning, over a real vector index."""

from contextlib import closing

import pytest

from app.services.search import related
from app.services.search.engine import SearchEngine
from app.services.search.related import Relations
from app.store.fulltext import dialects
from app.vectors.index import Choice, VectorIndex
from tests.vectors.library import Library, opened

PORTS = "Deployments were moved to a container orchestrator"
CUBE = "We run everything on kubernetes now"
CAKE = "We baked an apple cake for the birthday"


@pytest.fixture
def shelf(databases, tmp_path):
    with opened(databases, tmp_path) as library:
        yield library


def ask(shelf: Library, memory_id: str, index: VectorIndex | None) -> Relations:
    searching = SearchEngine(dialects.of(shelf.database.dialect), recency_half_life_days=90.0, index=index)
    with closing(searching):
        return related.to(searching, shelf.database, shelf.caller, memory_id, limit=10)


def test_a_memory_that_says_the_same_in_other_words_is_related(shelf):
    """The nearest by meaning, and nothing that has another subject."""
    one = shelf.add(narrative=PORTS)
    shelf.add(narrative=CUBE)
    shelf.add(narrative=CAKE)
    shelf.index.mirror.drain()

    relations = ask(shelf, one, shelf.index)

    assert [(each.memory.narrative, each.matched_by) for each in relations.related] == [(CUBE, ("semantic",))]


def test_without_an_index_words_relate_and_the_report_says_so(shelf):
    """When nobody answers at the index, the reply is degraded and not empty."""
    one = shelf.add(narrative="the signing keys rotate weekly")
    shelf.add(narrative="how the signing keys rotate")
    nobody = Choice(mode="http", folder=shelf.folder, url="http://127.0.0.1:9", embedder=shelf.embedder)

    with closing(VectorIndex(shelf.database, nobody)) as index:
        relations = ask(shelf, one, index)

    assert [each.matched_by for each in relations.related] == [("keyword",)]
    assert (relations.found.degraded, relations.found.fallback_reason) == (True, "chroma_connection")
