"""Search by meaning: the memories whose embeddings are closest to a query.

Returns ids and cosines only; rows, projects and filters are the database's.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.vectors import collection_names, documents, embedding
from app.vectors.chroma.collections import Collections, DocumentHit, Model
from app.vectors.embedding import Embedder, Vectors
from app.vectors.errors import IndexBehind, TimedOut
from app.vectors.query.staleness import PendingChanges

_DOCUMENTS_PER_MEMORY: Final = 3
_WIDENING: Final = 4
_MAX_DOCUMENTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class SemanticMatch:
    """A memory close to the query: the cosine of its best document, and the field that document was made from."""

    memory_id: str
    project_id: str
    cosine: float
    field: str


class SemanticSearch:
    """Nearest-neighbour search over the collections of projects.

    Thread-safe. Raises VectorsUnavailable within its time limit.
    """

    def __init__(
        self,
        collections: Collections,
        embedder: Embedder,
        *,
        earlier: Sequence[Embedder] = (),
        pending_changes: Callable[[str], PendingChanges],
        require: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        """`earlier` are models whose collections may still be live while they are rebuilt for `embedder`.

        `pending_changes` returns what has yet to be mirrored for a project. `require` raises VectorsUnavailable for
        projects that cannot be searched at the moment.
        """
        self._collections = collections
        self._require = require
        self._pending_changes = pending_changes
        self._embedder = embedder
        self._models = [(one, embedding.cache_queries(one)) for one in (embedder, *earlier)]

    def supports_script(self, script: str) -> bool:
        """Return whether the model understands a script (ISO 15924)."""
        return self._embedder.supports_script(script)

    def candidates(
        self, project_ids: Sequence[str], query: str, *, limit: int, timeout_seconds: float = 2.0
    ) -> list[SemanticMatch]:
        """Return at least `limit` memories of these projects, best first, or all there are.

        Each memory appears once, with its best document. `timeout_seconds` covers the whole call.
        """
        self._require(project_ids)
        deadline = time.monotonic() + timeout_seconds
        matches = [
            match
            for project_id in project_ids
            for match in self._closest(project_id, query, limit=limit, deadline=deadline)
        ]
        return sorted(matches, key=lambda match: (-match.cosine, match.memory_id))

    def cosines(self, project_id: str, query: str, memory_ids: Sequence[str]) -> dict[str, float]:
        """Return the exact cosine of each memory's best document; memories that are not indexed are left out."""
        if not memory_ids:
            return {}
        name = collection_names.live(project_id)
        vector = self._query_embedder(name)(query)
        pending = self._pending_changes(project_id)
        indexed = self._collections.vectors(name, memory_ids)
        stale = pending.stale({document_id: text_hash for document_id, (_, text_hash) in indexed.items()})
        best: dict[str, float] = {}
        for document_id, (document_vector, _) in indexed.items():
            if document_id not in stale:
                memory_id = documents.memory_id(document_id)
                best[memory_id] = max(float(document_vector @ vector), best.get(memory_id, -1.0))
        return best

    def _closest(self, project_id: str, query: str, *, limit: int, deadline: float) -> list[SemanticMatch]:
        """Fetch more and more documents until they cover enough memories, or the collection is exhausted."""
        name = collection_names.live(project_id)
        vector = self._query_embedder(name)(query)
        count = limit * _DOCUMENTS_PER_MEMORY
        pending = self._pending_changes(project_id)
        while True:
            hits = self._collections.query(
                name, vector, limit=count, hashed=bool(pending), seconds=_seconds_until(deadline)
            )
            stale = pending.stale({hit.document_id: hit.text_hash for hit in hits})
            matches = _best_per_memory(project_id, [hit for hit in hits if hit.document_id not in stale])
            if len(matches) >= limit or len(hits) < count or count >= _MAX_DOCUMENTS:
                return matches
            count = min(count * _WIDENING, _MAX_DOCUMENTS)

    def _query_embedder(self, name: str) -> Callable[[str], Vectors]:
        """Return how to embed a query for a collection: with the model whose vectors the collection holds."""
        collection = self._collections.find(name)
        for embedder, embed_query in self._models:
            if collection is None or collection.model == Model.of(embedder):
                return embed_query
        raise IndexBehind("The index is being rebuilt for another model.")


def _best_per_memory(project_id: str, hits: Sequence[DocumentHit]) -> list[SemanticMatch]:
    best: dict[str, SemanticMatch] = {}
    for hit in hits:  # best first
        memory_id = documents.memory_id(hit.document_id)
        if memory_id not in best:
            field = hit.document_id.removeprefix(f"mem_{memory_id}_")
            best[memory_id] = SemanticMatch(memory_id, project_id, hit.cosine, field)
    return list(best.values())


def _seconds_until(deadline: float) -> float:
    seconds = deadline - time.monotonic()
    if seconds <= 0:
        raise TimedOut("The vector index did not answer in time.")
    return seconds
