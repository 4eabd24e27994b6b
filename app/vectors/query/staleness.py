"""Which documents the index still holds of a text that has changed since: nobody may be found by what they said."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from app.store import outbox
from app.store.database import Database
from app.vectors import documents

_LISTED: Final = 2_000


@dataclass(frozen=True, slots=True)
class Unsettled:
    """Memories of a project that the index may hold as they were. Listed before the index is asked: what is settled
    while it answers had changed before, too. `memory_ids` None: too many to list.
    """

    database: Database
    project_id: str
    memory_ids: frozenset[str] | None

    @classmethod
    def of(cls, database: Database, project_id: str) -> "Unsettled":
        """Return what waits in the outbox now; it may only have been asked for again, and be unchanged."""
        with database.read() as connection:
            found = outbox.pending_in(connection, project_id, limit=_LISTED)
        return cls(database, project_id, frozenset(found) if len(found) < _LISTED else None)

    def __bool__(self) -> bool:
        return self.memory_ids is None or bool(self.memory_ids)

    def outdated(self, text_hashes: Mapping[str, object]) -> frozenset[str]:
        """Return which of these documents, by id with the hash that the index answered, are of a text that is gone."""
        memory_ids = {documents.memory_id(document_id) for document_id in text_hashes}
        suspects = memory_ids if self.memory_ids is None else memory_ids & self.memory_ids
        if not suspects:
            return frozenset()
        with self.database.read() as connection:
            rows = outbox.texts(connection, self.project_id, sorted(suspects))
        current = {one.id: one.text_hash for row in rows.values() for one in documents.of(row)}
        return frozenset(
            document_id
            for document_id, text_hash in text_hashes.items()
            if documents.memory_id(document_id) in suspects and current.get(document_id) != text_hash
        )
