"""Writes memories into a collection: embeds and stores what changed, removes what is gone. Knows no outbox."""

import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from app.store.outbox import MemoryText
from app.vectors import counters, documents
from app.vectors.chroma.collections import Collections, Model
from app.vectors.documents import Document, Metadata
from app.vectors.embedding import Vectors
from app.vectors.embedding.background import BackgroundEmbedder


@dataclass(frozen=True, slots=True)
class CollectionUpdate:
    """The pending changes of a collection. Embedding takes time: `apply` gets the memories that are still current."""

    changed: Sequence[Document]
    vectors: Vectors
    metadata_only: Sequence[Document]
    surplus_ids: Sequence[str]


class Writer:
    """Compares, embeds and stores documents."""

    def __init__(self, collections: Collections, embedding: BackgroundEmbedder) -> None:
        self._collections = collections
        self._embedding = embedding

    @property
    def model(self) -> Model:
        """The model whose vectors are written; reading it may send a request to the endpoint."""
        return Model.of(self._embedding.embedder)

    def prepare(self, name: str, memories: Sequence[MemoryText], deleted_ids: Sequence[str] = ()) -> CollectionUpdate:
        """Embed the texts of these memories that the collection does not hold yet."""
        current = [document for memory in memories for document in documents.of(memory)]
        known = self._collections.metadata(name, [*(memory.id for memory in memories), *deleted_ids])
        changed = [one for one in current if known.get(one.id, {}).get("text_hash") != one.text_hash]
        metadata_only = [one for one in current if one not in changed and not _has_metadata(known[one.id], one)]
        surplus_ids = sorted(known.keys() - {document.id for document in current})
        return CollectionUpdate(changed, self._embed(changed), metadata_only, surplus_ids)

    def apply(self, name: str, update: CollectionUpdate, memory_ids: Collection[str]) -> None:
        """Store the part of an update that belongs to these memories."""
        positions = [position for position, one in enumerate(update.changed) if _belongs_to(one.id, memory_ids)]
        if positions:
            changed = [update.changed[position] for position in positions]
            self._collections.upsert(name, self.model, changed, update.vectors[positions])
        metadata_only = [one for one in update.metadata_only if _belongs_to(one.id, memory_ids)]
        if metadata_only:
            self._collections.update_metadata(name, metadata_only)
        surplus_ids = [document_id for document_id in update.surplus_ids if _belongs_to(document_id, memory_ids)]
        if surplus_ids:
            self._collections.delete(name, surplus_ids)

    def embed_plain_text(self) -> None:
        """Raise EmbedderFailed when not even a plain text can be embedded."""
        self._embedding.embed(["A plain text."])

    def index(self, name: str, memories: Sequence[MemoryText]) -> None:
        """Prepare and apply in one step."""
        self.apply(name, self.prepare(name, memories), {memory.id for memory in memories})

    def _embed(self, changed: Sequence[Document]) -> Vectors:
        """Embed texts, and count them in the metrics."""
        started = time.perf_counter()
        with counters.EMBEDDING_FAILURES.count_exceptions():
            vectors = self._embedding.embed([one.text for one in changed])
        counters.EMBEDDING_SECONDS.inc(time.perf_counter() - started)
        counters.EMBEDDED_TEXTS.inc(len(changed))
        counters.EMBEDDED_MEMORIES.inc(len({documents.memory_id(one.id) for one in changed}))
        return vectors


def _has_metadata(stored: Metadata, document: Document) -> bool:
    return document.metadata.items() <= stored.items()


def _belongs_to(document_id: str, memory_ids: Collection[str]) -> bool:
    return documents.memory_id(document_id) in memory_ids
