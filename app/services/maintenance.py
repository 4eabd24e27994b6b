"""Maintenance: what keeps a server small and quick over years, by command and daily by the server itself."""

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

import structlog
from sqlalchemy import Connection, delete, func

from app.caller import server_owner
from app.clock import now_ms
from app.services import audit, idempotency, limits, neighbours, retention
from app.store import compaction
from app.store.database import Database
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
    idempotency_records: int
    operations: int
    freed_pages: int
    log_emptied: bool


def run(database: Database, *, progress: Progress = lambda _: None) -> Report:
    """Do it all once. Interrupted, the next run goes on; run twice, the second has nothing to do."""
    expired = 0
    progress("applying retention")
    for outcome in retention.run_all(database):
        expired += outcome.removed
        progress("applying retention")
    progress("forgetting what has outlived its use")
    with database.write() as connection:
        old_records = idempotency.forget_old(connection)
        limits.forget_old(connection)
        old_operations = _forget_operations(connection)
    progress("setting right what neighbours lend")
    neighbours.refresh_all(database)
    compaction.merge_full_text(database, lambda: progress("merging full text"))
    freed_pages = compaction.give_pages_back(database, lambda: progress("giving pages back"))
    compaction.refresh_statistics(database)
    progress("emptying the log")
    with database.write() as connection:
        audit.record(connection, server_owner(), _RUN, target=("server", None))
    report = Report(
        expired_memories=expired,
        idempotency_records=old_records,
        operations=old_operations,
        freed_pages=freed_pages,
        log_emptied=compaction.fold_log_in(database),
    )
    _log.info("maintenance_done", expired_memories=expired, freed_pages=freed_pages, log_emptied=report.log_emptied)
    return report


class Daily:
    """Runs when the last time was a day ago: for the server, which looks now and then."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._stopping = False

    def look(self) -> None:
        """Run when that is due."""
        with self._database.read() as connection:
            is_due = _is_due(connection)
        if is_due:
            with suppress(_Stopped):
                run(self._database, progress=self._go_on)

    def stop(self) -> None:
        """End a run where it is; it is due again after the next start."""
        self._stopping = True

    def _go_on(self, _: str) -> None:
        if self._stopping:
            raise _Stopped


def _is_due(connection: Connection) -> bool:
    """Say whether a day has passed: since the last run, and on a young server since its first team."""
    last = connection.scalar(every(audit_log, func.max(audit_log.c.created_at_epoch)).where(audit_log.c.action == _RUN))
    since = last or connection.scalar(every(teams, func.min(teams.c.created_at_epoch)))
    return since is not None and since < now_ms() - _DAY_MS


def _forget_operations(connection: Connection) -> int:
    """Delete operations that were done or failed a month ago."""
    old = operations.c.finished_at_epoch < now_ms() - _OPERATIONS_KEPT_MS
    return connection.execute(delete(operations).where(old)).rowcount
