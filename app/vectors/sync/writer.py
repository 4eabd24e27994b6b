"""Brings memories into a collection: embeds what changed, stores it, removes what is gone. Knows no outbox."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from app.store.outbox import MemoryText
from app.vectors import counters, documents
from app.vectors.chroma.collections import Collections, Model
from app.vectors.documents import Document, Metadata
from app.vectors.embedding import Vectors
from app.vectors.embedding.background import BackgroundEmbedding


@dataclass(frozen=True, slots=True)
class Prepared:
    """What has to be done to a collection. Embedding took time: whoever applies it says what still holds."""

    changed: Sequence[Document]
    vectors: Vectors
    redescribed: Sequence[Document]
    surplus: Sequence[str]


class Writer:
    """Compares, embeds and stores."""

    def __init__(self, collections: Collections, embedding: BackgroundEmbedding) -> None:
        self._collections = collections
        self._embedding = embedding

    @property
    def model(self) -> Model:
        """The model whose vectors are written; an endpoint may have to be asked."""
        return Model.of(self._embedding.embedder)

    def prepare(self, name: str, memories: Sequence[MemoryText], gone: Sequence[str] = ()) -> Prepared:
        """Embed the texts of memories that the collection does not hold yet; `gone` are ids of deleted memories."""
        wanted = [document for memory in memories for document in documents.of(memory)]
        known = self._collections.metadata(name, [*(memory.id for memory in memories), *gone])
        changed = [one for one in wanted if known.get(one.id, {}).get("text_hash") != one.text_hash]
        redescribed = [one for one in wanted if one not in changed and not _describes(known[one.id], one)]
        surplus = sorted(known.keys() - {document.id for document in wanted})
        return Prepared(changed, self._embedded(changed), redescribed, surplus)

    def apply(self, name: str, prepared: Prepared, memory_ids: Collection[str]) -> None:
        """Store what was prepared for these memories, and only for these."""
        kept = [place for place, one in enumerate(prepared.changed) if documents.memory_id(one.id) in memory_ids]
        if kept:
            chosen = [prepared.changed[place] for place in kept]
            self._collections.upsert(name, self.model, chosen, prepared.vectors[kept])
        redescribed = [one for one in prepared.redescribed if documents.memory_id(one.id) in memory_ids]
        if redescribed:
            self._collections.redescribe(name, redescribed)
        surplus = [document_id for document_id in prepared.surplus if documents.memory_id(document_id) in memory_ids]
        if surplus:
            self._collections.delete(name, surplus)

    def embed_plain_text(self) -> None:
        """Raise EmbedderFailed when not even that can be done."""
        self._embedding.embed(["A plain text."])

    def bring(self, name: str, memories: Sequence[MemoryText]) -> None:
        """Prepare and apply at once."""
        self.apply(name, self.prepare(name, memories), {memory.id for memory in memories})

    def _embedded(self, changed: Sequence[Document]) -> Vectors:
        """Embed texts, and count them for whoever watches the rate."""
        started = time.perf_counter()
        with counters.EMBEDDING_FAILURES.count_exceptions():
            vectors = self._embedding.embed([one.text for one in changed])
        counters.EMBEDDING_SECONDS.inc(time.perf_counter() - started)
        counters.EMBEDDED_TEXTS.inc(len(changed))
        counters.EMBEDDED_MEMORIES.inc(len({documents.memory_id(one.id) for one in changed}))
        return vectors


def _describes(kept: Metadata, document: Document) -> bool:
    return document.metadata.items() <= kept.items()
