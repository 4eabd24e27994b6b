"""The audit log's own retention: the oldest entries go, and an entry says so. Nothing else ever leaves the log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, delete, func, insert

from app.caller import server_owner
from app.clock import now_ms
from app.services.audit import entries
from app.store.database import Database
from app.store.models import audit_log, audit_retention
from app.store.scope import every

_DAY_MS: Final = 86_400_000
_BATCH_ENTRIES: Final = 1_000

Progress = Callable[[int], None]
"""Told how many entries are gone; raises to end the run where it is."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many entries from before a time went, or would go."""

    before_epoch: int
    removed: int


def prune(
    database: Database, older_than_days: int, *, dry_run: bool = False, progress: Progress = lambda _: None
) -> Pruned:
    """Remove entries older than some days, batch by batch. Interrupted, the next run goes on; twice is safe."""
    before = now_ms() - older_than_days * _DAY_MS
    if dry_run:
        return Pruned(before, _count(database, before))
    until, removed = _newest(database), 0
    while seqs := _oldest(database, before, until):
        removed += _remove(database, seqs, before)
        progress(removed)
    return Pruned(before, removed)


def _count(database: Database, before: int) -> int:
    with database.read() as connection:
        old = every(audit_log, func.count()).where(audit_log.c.created_at_epoch < before)
        return connection.scalar(old) or 0


def _newest(database: Database) -> int:
    """Return the last entry at the beginning: the run's own are none of its business, whatever the clock says."""
    with database.read() as connection:
        return connection.scalar(every(audit_log, func.max(audit_log.c.seq))) or 0


def _oldest(database: Database, before: int, until: int) -> Sequence[int]:
    """Return the next entries that go. Found while reading: looking through a long log must not hold the write lock."""
    old = every(audit_log, audit_log.c.seq).where(audit_log.c.created_at_epoch < before, audit_log.c.seq <= until)
    with database.read() as connection:
        return connection.scalars(old.order_by(audit_log.c.seq).limit(_BATCH_ENTRIES)).all()


def _remove(database: Database, seqs: Sequence[int], before: int) -> int:
    """Remove one batch, with its entry. The mark that lets them go stands within this transaction only."""
    with database.write() as connection:
        _mark(connection, before)
        removed = connection.execute(delete(audit_log).where(audit_log.c.seq.in_(seqs))).rowcount
        connection.execute(delete(audit_retention))
        if removed:
            entries.record(connection, server_owner(), "audit.prune", target=("audit", None), count=removed)
    return removed


def _mark(connection: Connection, before: int) -> None:
    connection.execute(delete(audit_retention))
    connection.execute(insert(audit_retention).values(id=1, before_epoch=before))
