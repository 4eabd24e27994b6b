"""Maintenance: what keeps a server small and quick over years, by command and daily by the server itself."""

from collections.abc import Callable
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

Progress = Callable[[str], None]
"""Told which step begins."""


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
    with database.write() as connection:
        audit.record(connection, server_owner(), _RUN, target=("server", None))
    progress("applying retention")
    expired = sum(outcome.removed for outcome in retention.run_all(database))
    progress("forgetting what has outlived its use")
    with database.write() as connection:
        old_records = idempotency.forget_old(connection)
        limits.forget_old(connection)
        old_operations = _forget_operations(connection)
    progress("setting right what neighbours lend")
    neighbours.refresh_all(database)
    progress("merging full text")
    compaction.merge_full_text(database)
    progress("giving pages back")
    freed_pages = compaction.give_pages_back(database)
    compaction.refresh_statistics(database)
    progress("emptying the log")
    report = Report(
        expired_memories=expired,
        idempotency_records=old_records,
        operations=old_operations,
        freed_pages=freed_pages,
        log_emptied=compaction.fold_log_in(database),
    )
    _log.info("maintenance_done", expired_memories=expired, freed_pages=freed_pages, log_emptied=report.log_emptied)
    return report


def run_when_due(database: Database) -> Report | None:
    """Run when the last time was a day ago; None otherwise. Of several servers one does it."""
    with database.read() as connection:
        if not _is_due(connection):
            return None
    return run(database)


def _is_due(connection: Connection) -> bool:
    """Say whether a day has passed: since the last run, and on a young server since its first team."""
    last = connection.scalar(every(audit_log, func.max(audit_log.c.created_at_epoch)).where(audit_log.c.action == _RUN))
    since = last or connection.scalar(every(teams, func.min(teams.c.created_at_epoch)))
    return since is not None and since < now_ms() - _DAY_MS


def _forget_operations(connection: Connection) -> int:
    """Delete operations that were done or failed a month ago."""
    old = operations.c.finished_at_epoch < now_ms() - _OPERATIONS_KEPT_MS
    return connection.execute(delete(operations).where(old)).rowcount
