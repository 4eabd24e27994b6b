"""Maintenance: what keeps a server small and quick over years, by command and daily by the server itself."""

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
from app.store.scope import every

_log = structlog.get_logger(__name__)

_DAY_MS: Final = 86_400_000
_OPERATIONS_KEPT_MS: Final = 30 * _DAY_MS
_RUN: Final = "maintenance.run"


class _Stopped(Exception):
    """The server stops."""


Progress = Callable[[str], None]
"""Told which step begins or goes on; raises to end the run where it is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """What a run did. `log_emptied` False: somebody read all the while, and the next run tries again."""

    expired_memories: int
    audit_entries: int
    idempotency_records: int
    operations: int
    freed_pages: int
    log_emptied: bool


def run(database: Database, *, audit_days: int = 0, progress: Progress = lambda _: None) -> Report:
    """Do it all once. Interrupted, the next run goes on; run twice, the second has nothing to do.

    The audit log is kept for `audit_days`; 0 is for ever.
    """
    expired = 0
    progress("applying retention")
    for outcome in retention.run_all(database):
        expired += outcome.removed
        progress("applying retention")
    audit_entries = _prune_audit(database, audit_days, progress)
    progress("forgetting what has outlived its use")
    with database.write() as connection:
        old_records = idempotency.forget_old(connection)
        rate_limit.forget_old(connection)
        old_operations = _forget_operations(connection)
    progress("setting right what neighbours lend")
    context_text.refresh_all(database)
    care = dialects.of(database.dialect)
    care.merge_full_text(database, lambda: progress("merging full text"))
    freed_pages = care.give_pages_back(database, lambda: progress("giving pages back"))
    care.refresh_statistics(database)
    progress("emptying the log")
    with database.write() as connection:
        entries.record(connection, server_owner(), _RUN, target=("server", None))
    report = Report(
        expired_memories=expired,
        audit_entries=audit_entries,
        idempotency_records=old_records,
        operations=old_operations,
        freed_pages=freed_pages,
        log_emptied=care.fold_log_in(database),
    )
    _log.info("maintenance_done", expired_memories=expired, freed_pages=freed_pages, log_emptied=report.log_emptied)
    return report


class Daily:
    """Runs when the last time was a day ago: for the server, which looks now and then. `afterwards` ends a run."""

    def __init__(
        self, database: Database, *, audit_days: int = 0, afterwards: Callable[[Database], None] = lambda _: None
    ) -> None:
        self._database = database
        self._audit_days = audit_days
        self._afterwards = afterwards
        self._stopping = False

    def look(self) -> None:
        """Run when that is due, and no other server is at it: whoever comes second finds it done."""
        if not self._is_due():
            return
        with self._database.alone("maintenance", wait=False) as is_mine:
            if is_mine and self._is_due():
                with suppress(_Stopped):
                    run(self._database, audit_days=self._audit_days, progress=self._go_on)
                    self._afterwards(self._database)

    def stop(self) -> None:
        """End a run where it is; it is due again after the next start."""
        self._stopping = True

    def _is_due(self) -> bool:
        with self._database.read() as connection:
            return _is_due(connection)

    def _go_on(self, _: str) -> None:
        if self._stopping:
            raise _Stopped


def _is_due(connection: Connection) -> bool:
    """Say whether a day has passed: since the last run, and on a young server since its first team."""
    last = connection.scalar(every(audit_log, func.max(audit_log.c.created_at_epoch)).where(audit_log.c.action == _RUN))
    since = last or connection.scalar(every(teams, func.min(teams.c.created_at_epoch)))
    return since is not None and since < now_ms() - _DAY_MS


def _prune_audit(database: Database, days: int, progress: Progress) -> int:
    """Remove old entries of the audit log, if it is not kept for ever; return how many."""
    if not days:
        return 0
    progress("pruning the audit log")
    return pruning.prune(database, days, progress=lambda _: progress("pruning the audit log")).removed


def _forget_operations(connection: Connection) -> int:
    """Delete operations that were done or failed a month ago."""
    old = operations.c.finished_at_epoch < now_ms() - _OPERATIONS_KEPT_MS
    return connection.execute(delete(operations).where(old)).rowcount
