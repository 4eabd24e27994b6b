"""Retention of the audit log: deletes the oldest entries and records that. Nothing else deletes from the log."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from sqlalchemy import Connection, delete, func, insert

from app.caller import server_owner
from app.clock import now_ms
from app.services.audit import entries
from app.store.database import Database
from app.store.models import audit_log, audit_retention
from app.store.scope import unscoped

_DAY_MS: Final = 86_400_000
_BATCH_ENTRIES: Final = 1_000

Progress = Callable[[int], None]
"""Called with the number of entries removed so far; may raise to stop the run."""


@dataclass(frozen=True, slots=True)
class Pruned:
    """How many entries from before a time were removed, or would be in a dry run."""

    before_epoch: int
    removed: int


def prune(
    database: Database, older_than_days: int, *, dry_run: bool = False, progress: Progress = lambda _: None
) -> Pruned:
    """Remove entries older than `older_than_days`, in batches. Idempotent; an interrupted run can be repeated."""
    before_ms = now_ms() - older_than_days * _DAY_MS
    if dry_run:
        return Pruned(before_ms, _count(database, before_ms))
    last_seq, removed = _last_seq(database), 0
    while seqs := _oldest_batch(database, before_ms, last_seq):
        removed += _remove(database, seqs, before_ms)
        progress(removed)
    return Pruned(before_ms, removed)


def _count(database: Database, before_ms: int) -> int:
    with database.read() as connection:
        old = unscoped(audit_log, func.count()).where(audit_log.c.created_at_epoch < before_ms)
        return connection.scalar(old) or 0


def _last_seq(database: Database) -> int:
    """Return the last entry at the start: a run must not remove its own entries, even if the clock jumps."""
    with database.read() as connection:
        return connection.scalar(unscoped(audit_log, func.max(audit_log.c.seq))) or 0


def _oldest_batch(database: Database, before_ms: int, last_seq: int) -> Sequence[int]:
    """Return the next entries to remove. A read transaction: scanning a long log must not hold the write lock."""
    old = unscoped(audit_log, audit_log.c.seq).where(
        audit_log.c.created_at_epoch < before_ms, audit_log.c.seq <= last_seq
    )
    with database.read() as connection:
        return connection.scalars(old.order_by(audit_log.c.seq).limit(_BATCH_ENTRIES)).all()


def _remove(database: Database, seqs: Sequence[int], before_ms: int) -> int:
    """Remove one batch and record it. The marker that permits the deletion exists only within this transaction."""
    with database.write() as connection:
        _permit_deletion(connection, before_ms)
        removed = connection.execute(delete(audit_log).where(audit_log.c.seq.in_(seqs))).rowcount
        connection.execute(delete(audit_retention))
        if removed:
            entries.record(connection, server_owner(), "audit.prune", target=("audit", None), count=removed)
    return removed


def _permit_deletion(connection: Connection, before_ms: int) -> None:
    connection.execute(delete(audit_retention))
    connection.execute(insert(audit_retention).values(id=1, before_epoch=before_ms))
