"""Maintenance keeps a server small and fast over years: by command, and daily by the server itself."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog
from sqlalchemy import Connection, delete, func

from app.caller import server_owner
from app.clock import now_ms
from app.services.audit import entries, pruning
from app.services.deletion import retention
from app.services.memories import context_text
from app.services.quotas import rate_limit
from app.services.shared import idempotency
from app.store.database import Database
from app.store.maintenance import dialects
from app.store.models import audit_log, operations, teams
from app.store.scope import unscoped

_log = structlog.get_logger(__name__)

_DAY_MS: Final = 86_400_000
_OPERATIONS_KEPT_MS: Final = 30 * _DAY_MS
_RUN: Final = "maintenance.run"


class _MaintenanceStopped(Exception):
    """The server is stopping."""


Progress = Callable[[str], None]
"""Called with the current step; raises to stop the run there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MaintenanceReport:
    """What a run did. `log_emptied` is False when readers kept the WAL busy; the next run tries again."""

    expired_memories: int
    audit_entries: int
    idempotency_records: int
    operations: int
    freed_pages: int
    log_emptied: bool


def run(database: Database, *, audit_days: int = 0, progress: Progress = lambda _: None) -> MaintenanceReport:
    """Run every step once. After an interruption the next run continues; a second run has nothing left to do.

    Audit entries are kept for `audit_days`, or forever if 0.
    """
    expired = 0
    progress("applying retention")
    for outcome in retention.run_all(database):
        expired += outcome.removed
        progress("applying retention")
    audit_entries = _prune_audit(database, audit_days, progress)
    progress("deleting expired records")
    with database.write() as connection:
        old_records = idempotency.delete_expired(connection)
        rate_limit.delete_expired(connection)
        old_operations = _delete_old_operations(connection)
    progress("refreshing context text")
    context_text.refresh_all(database)
    backend = dialects.of(database.dialect)
    backend.merge_full_text(database, lambda: progress("merging the full-text index"))
    freed_pages = backend.release_free_pages(database, lambda: progress("releasing free pages"))
    backend.refresh_statistics(database)
    progress("checkpointing the WAL")
    with database.write() as connection:
        entries.record(connection, server_owner(), _RUN, target=("server", None))
    report = MaintenanceReport(
        expired_memories=expired,
        audit_entries=audit_entries,
        idempotency_records=old_records,
        operations=old_operations,
        freed_pages=freed_pages,
        log_emptied=backend.checkpoint_log(database),
    )
    _log.info("maintenance_done", expired_memories=expired, freed_pages=freed_pages, log_emptied=report.log_emptied)
    return report


class DailyMaintenance:
    """Runs maintenance in the server once the last run was a day ago, followed by `afterwards`."""

    def __init__(
        self, database: Database, *, audit_days: int = 0, afterwards: Callable[[Database], None] = lambda _: None
    ) -> None:
        self._database = database
        self._audit_days = audit_days
        self._afterwards = afterwards
        self._stopping = False

    def run_if_due(self) -> None:
        """Run maintenance if it is due, unless another server is running it or has just done so."""
        if not self._is_due():
            return
        with self._database.advisory_lock("maintenance", wait=False) as is_locked:
            if is_locked and self._is_due():
                with suppress(_MaintenanceStopped):
                    run(self._database, audit_days=self._audit_days, progress=self._raise_if_stopping)
                    self._afterwards(self._database)

    def stop(self) -> None:
        """Stop a run where it is; it is due again after the next start."""
        self._stopping = True

    def _is_due(self) -> bool:
        with self._database.read() as connection:
            return _is_due(connection)

    def _raise_if_stopping(self, _: str) -> None:
        if self._stopping:
            raise _MaintenanceStopped


def _is_due(connection: Connection) -> bool:
    """Say whether a day has passed since the last run or, on a new server, since its first team was created."""
    runs = unscoped(audit_log, func.max(audit_log.c.created_at_epoch)).where(audit_log.c.action == _RUN)
    last = connection.scalar(runs)
    since = last or connection.scalar(unscoped(teams, func.min(teams.c.created_at_epoch)))
    return since is not None and since < now_ms() - _DAY_MS


def _prune_audit(database: Database, days: int, progress: Progress) -> int:
    """Delete old audit entries unless they are kept forever; return how many."""
    if not days:
        return 0
    progress("pruning the audit log")
    return pruning.prune(database, days, progress=lambda _: progress("pruning the audit log")).removed


def _delete_old_operations(connection: Connection) -> int:
    """Delete operations that finished more than 30 days ago."""
    old = operations.c.finished_at_epoch < now_ms() - _OPERATIONS_KEPT_MS
    return connection.execute(delete(operations).where(old)).rowcount
