"""Search by meaning: which memories are near a question. Ids and similarities only; rows and scopes are SQL's."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from app.vectors import collection_names, documents, embedding
from app.vectors.chroma.collections import Collections, Hit, Model
from app.vectors.embedding import Embedder, Vectors
from app.vectors.errors import IndexBehind, TimedOut
from app.vectors.query.staleness import Unsettled

_DOCUMENTS_PER_MEMORY: Final = 3
_WIDENING: Final = 4
_MAX_DOCUMENTS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Candidate:
    """A memory near the question: the cosine of its best document, and which field that is."""

    memory_id: str
    project_id: str
    cosine: float
    field: str


class Meaning:
    """Questions to memories. Safe from any thread; raises VectorsUnavailable within its time limit."""

    def __init__(
        self,
        collections: Collections,
        embedder: Embedder,
        *,
        earlier: Sequence[Embedder] = (),
        unsettled: Callable[[str], Unsettled],
        require: Callable[[Sequence[str]], None] = lambda _: None,
    ) -> None:
        """`earlier` are models whose collections may still serve while they are rebuilt for `embedder`.

        `unsettled` says what of a project waits to be mirrored. `require` raises VectorsUnavailable for projects that
        cannot be answered for at the moment.
        """
        self._collections = collections
        self._require = require
        self._unsettled = unsettled
        self._embedder = embedder
        self._models = [(one, embedding.remember_queries(one)) for one in (embedder, *earlier)]

    def reads(self, script: str) -> bool:
        """Say whether the model understands a script (ISO 15924)."""
        return self._embedder.reads(script)

    def candidates(
        self, project_ids: Sequence[str], question: str, *, limit: int, seconds: float = 2.0
    ) -> list[Candidate]:
        """Return at least `limit` memories of these projects, best first, or all that there are.

        One per memory, by its best document. `seconds` bounds all of it.
        """
        self._require(project_ids)
        deadline = time.monotonic() + seconds
        found = [
            candidate
            for project_id in project_ids
            for candidate in self._nearest(project_id, question, limit=limit, deadline=deadline)
        ]
        return sorted(found, key=lambda candidate: (-candidate.cosine, candidate.memory_id))

    def cosines(self, project_id: str, question: str, memory_ids: Sequence[str]) -> dict[str, float]:
        """Return the exact cosine of each memory's best document; memories without one are left out."""
        if not memory_ids:
            return {}
        name = collection_names.serving(project_id)
        vector = self._ask_for(name)(question)
        unsettled = self._unsettled(project_id)
        kept = self._collections.vectors(name, memory_ids)
        old = unsettled.outdated({document_id: text_hash for document_id, (_, text_hash) in kept.items()})
        best: dict[str, float] = {}
        for document_id, (kept_vector, _) in kept.items():
            if document_id not in old:
                memory_id = documents.memory_id(document_id)
                best[memory_id] = max(float(kept_vector @ vector), best.get(memory_id, -1.0))
        return best

    def _nearest(self, project_id: str, question: str, *, limit: int, deadline: float) -> list[Candidate]:
        """Ask for more and more documents until they make enough memories, or there are no more."""
        name = collection_names.serving(project_id)
        vector = self._ask_for(name)(question)
        asked = limit * _DOCUMENTS_PER_MEMORY
        unsettled = self._unsettled(project_id)
        while True:
            hits = self._collections.query(name, vector, limit=asked, hashed=bool(unsettled), seconds=_left(deadline))
            old = unsettled.outdated({hit.document_id: hit.text_hash for hit in hits})
            candidates = _best_per_memory(project_id, [hit for hit in hits if hit.document_id not in old])
            if len(candidates) >= limit or len(hits) < asked or asked >= _MAX_DOCUMENTS:
                return candidates
            asked = min(asked * _WIDENING, _MAX_DOCUMENTS)

    def _ask_for(self, name: str) -> Callable[[str], Vectors]:
        """Return how to embed a question for a collection: by the model whose vectors it holds."""
        collection = self._collections.find(name)
        for embedder, embed_query in self._models:
            if collection is None or collection.model == Model.of(embedder):
                return embed_query
        raise IndexBehind("The index is being rebuilt for another model.")


def _best_per_memory(project_id: str, hits: Sequence[Hit]) -> list[Candidate]:
    best: dict[str, Candidate] = {}
    for hit in hits:  # best first
        memory_id = documents.memory_id(hit.document_id)
        if memory_id not in best:
            field = hit.document_id.removeprefix(f"mem_{memory_id}_")
            best[memory_id] = Candidate(memory_id, project_id, hit.cosine, field)
    return list(best.values())


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimedOut("The vector index did not answer in time.")
    return left
