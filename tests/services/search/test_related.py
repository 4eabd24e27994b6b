"""Related memories, over a real vector index."""

from contextlib import closing

import pytest

from app.services.search import related
from app.services.search.engine import SearchEngine
from app.services.search.related import RelatedResults
from app.store.fulltext import dialects
from app.vectors.index import VectorIndex, VectorIndexConfig
from tests.vectors.library import Library, opened

PORTS = "Deployments were moved to a container orchestrator"
CUBE = "We run everything on kubernetes now"
CAKE = "We baked an apple cake for the birthday"


@pytest.fixture
def shelf(databases, tmp_path):
    with opened(databases, tmp_path) as library:
        yield library


def ask(shelf: Library, memory_id: str, index: VectorIndex | None) -> RelatedResults:
    engine = SearchEngine(dialects.of(shelf.database.dialect), recency_half_life_days=90.0, index=index)
    with closing(engine):
        return related.find(engine, shelf.database, shelf.caller, memory_id, limit=10)


def test_paraphrase_is_related(shelf):
    """The closest by meaning, and nothing about another subject."""
    one = shelf.add(narrative=PORTS)
    shelf.add(narrative=CUBE)
    shelf.add(narrative=CAKE)
    shelf.index.mirror.drain()

    found = ask(shelf, one, shelf.index)

    assert [(each.memory.narrative, each.matched_by) for each in found.related] == [(CUBE, ("semantic",))]


def test_related_falls_back_to_keywords_without_an_index(shelf):
    """When the index does not respond, the reply is degraded, not empty."""
    one = shelf.add(narrative="the signing keys rotate weekly")
    shelf.add(narrative="how the signing keys rotate")
    unreachable = VectorIndexConfig(mode="http", folder=shelf.folder, url="http://127.0.0.1:9", embedder=shelf.embedder)

    with closing(VectorIndex(shelf.database, unreachable)) as index:
        found = ask(shelf, one, index)

    assert [each.matched_by for each in found.related] == [("keyword",)]
    assert (found.results.degraded, found.results.fallback_reason) == (True, "chroma_connection")
