"""Stale documents: those the index still holds although the text they were made from has changed since."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.store import outbox
from app.store.database import Database
from app.vectors import documents

_MAX_LISTED: Final = 2_000


@dataclass(frozen=True, slots=True)
class PendingChanges:
    """Memories of a project whose documents may be stale; `memory_ids` is None when there are too many to list.

    Read before the index is queried: whatever is mirrored while the query runs was pending then, too.
    """

    database: Database
    project_id: str
    memory_ids: frozenset[str] | None

    @classmethod
    def of(cls, database: Database, project_id: str) -> "PendingChanges":
        """Return what is in the outbox now; some of it may be queued again without having changed."""
        with database.read() as connection:
            pending = outbox.pending_in(connection, project_id, limit=_MAX_LISTED)
        return cls(database, project_id, frozenset(pending) if len(pending) < _MAX_LISTED else None)

    def __bool__(self) -> bool:
        return self.memory_ids is None or bool(self.memory_ids)

    def stale(self, text_hashes: Mapping[str, object]) -> frozenset[str]:
        """Return which documents, given by id with their indexed hash, no longer match the memory's text."""
        memory_ids = {documents.memory_id(document_id) for document_id in text_hashes}
        suspects = memory_ids if self.memory_ids is None else memory_ids & self.memory_ids
        if not suspects:
            return frozenset()
        with self.database.read() as connection:
            rows = outbox.texts(connection, self.project_id, sorted(suspects))
        current = {document.id: document.text_hash for row in rows.values() for document in documents.of(row)}
        return frozenset(
            document_id
            for document_id, text_hash in text_hashes.items()
            if documents.memory_id(document_id) in suspects and current.get(document_id) != text_hash
        )
