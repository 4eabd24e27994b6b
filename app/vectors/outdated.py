"""Which documents the index still holds of a text that has changed since: nobody may be found by what they said."""

from collections.abc import Sequence
from typing import Protocol

from app.store import outbox
from app.store.database import Database
from app.vectors import documents, places
from app.vectors.chroma.collections import Collections


class Outdated(Protocol):
    """Tells documents of old texts."""

    def __call__(self, project_id: str, memory_ids: Sequence[str], *, seconds: float) -> frozenset[str]:
        """Return the ids of these memories' documents that are outdated; raise VectorsUnavailable in time."""


def nothing(project_id: str, memory_ids: Sequence[str], *, seconds: float) -> frozenset[str]:  # noqa: ARG001
    """Trust the index."""
    return frozenset()


def by_outbox(database: Database, collections: Collections) -> Outdated:
    """Compare what waits in the outbox: only that can have changed, and need not have where it was asked for again."""

    def outdated(project_id: str, memory_ids: Sequence[str], *, seconds: float) -> frozenset[str]:
        with database.read() as connection:
            pending = sorted(outbox.pending_among(connection, memory_ids))
            rows = outbox.texts(connection, project_id, pending) if pending else {}
        if not pending:
            return frozenset()
        current = {one.id: one.text_hash for row in rows.values() for one in documents.of(row)}
        kept = collections.metadata(places.serving(project_id), pending, seconds=seconds)
        return frozenset(name for name, held in kept.items() if held.get("text_hash") != current.get(name))

    return outdated
