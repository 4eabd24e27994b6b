"""Gauges of a server: memories, the backlog of the vector index, and file sizes."""

from collections.abc import Iterator

from sqlalchemy import func

from app.clock import now_ms
from app.store import outbox
from app.store.database import Database
from app.store.maintenance import dialects
from app.store.models import project_statistics
from app.store.scope import unscoped

Gauge = tuple[str, str, float]
"""Name, description and value."""


def read(database: Database) -> Iterator[Gauge]:
    """Yield every gauge; sizes in bytes, ages in seconds."""
    with database.read() as connection:
        backlogs = list(outbox.backlogs(connection).values())
        memories = connection.scalar(unscoped(project_statistics, func.sum(project_statistics.c.memories))) or 0
    now = now_ms()
    oldest = min((each.oldest_enqueued_at_epoch or now for each in backlogs), default=now)
    yield "memories", "Memories of all teams.", memories
    yield "outbox_pending", "Memories waiting for their vectors.", sum(each.pending for each in backlogs)
    yield "outbox_failed", "Memories set aside after repeated failures.", sum(each.failed for each in backlogs)
    yield "outbox_oldest_seconds", "How long the oldest of them has been waiting.", max(0, now - oldest) / 1000
    for name, size in dialects.of(database.dialect).sizes(database).items():
        yield f"{name}_bytes", f"Size of the {name} on disk.", size
