"""Numbers that tell how a server stands: what waits for the vector index, and how large the files are."""

from collections.abc import Iterator

from sqlalchemy import func

from app.clock import now_ms
from app.store import outbox
from app.store.database import Database
from app.store.maintenance import dialects
from app.store.models import project_statistics
from app.store.scope import every

Gauge = tuple[str, str, float]
"""Name, description and value."""


def read(database: Database) -> Iterator[Gauge]:
    """Yield every number; sizes are bytes, ages seconds."""
    with database.read() as connection:
        backlogs = list(outbox.backlogs(connection).values())
        memories = connection.scalar(every(project_statistics, func.sum(project_statistics.c.memories))) or 0
    now = now_ms()
    oldest = min((each.oldest_enqueued_at_epoch or now for each in backlogs), default=now)
    yield "memories", "Memories of all teams.", memories
    yield "outbox_pending", "Memories that wait for their vectors.", sum(each.pending for each in backlogs)
    yield "outbox_failed", "Memories that were set aside.", sum(each.failed for each in backlogs)
    yield "outbox_oldest_seconds", "How long the first of them has waited.", max(0, now - oldest) / 1000
    for name, size in dialects.of(database.dialect).sizes(database).items():
        yield f"{name}_bytes", f"Size of the {name} on disk.", size
