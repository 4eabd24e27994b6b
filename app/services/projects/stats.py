"""Statistics of a project."""

from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from sqlalchemy import Column, ColumnElement, Connection, Table, func

from app.caller import Caller
from app.clock import now_ms
from app.services.projects import projects
from app.store import outbox
from app.store.byte_length import byte_length
from app.store.models import agent_events, memory_items, server_sessions
from app.store.scope import owned

_DAY_MS: Final = 86_400_000
_MEMORY: Final = memory_items.c


class Stats(msgspec.Struct, frozen=True, kw_only=True):
    """Counts of a project. Days are UTC; `storage_bytes` is the size of the stored text.

    `pending`, `failed` and `oldest_pending_seconds` describe how far the vector index lags behind.
    """

    project_id: str
    memories: int
    sessions: int
    events: int
    by_kind: dict[str, int]
    by_type: dict[str, int]
    by_day: dict[str, int]
    storage_bytes: int
    pending: int
    failed: int
    oldest_pending_seconds: int | None


def of_project(connection: Connection, caller: Caller, project_id: str) -> Stats:
    """Return the counts of a project; NotFound when it is outside the caller's scope."""
    projects.get(connection, caller, project_id)
    queries = _ProjectQueries(connection, caller, project_id)
    by_kind = queries.counts(_MEMORY.kind)
    backlog = outbox.backlogs(connection, project_id).get(project_id)
    oldest = backlog and backlog.oldest_enqueued_at_epoch
    return Stats(
        project_id=project_id,
        memories=sum(by_kind.values()),
        sessions=queries.value(server_sessions, func.count()),
        events=queries.value(agent_events, func.count()),
        by_kind=by_kind,
        by_type=queries.counts(_MEMORY.type),
        by_day={_date(day): count for day, count in queries.counts(_MEMORY.created_at_epoch // _DAY_MS).items()},
        storage_bytes=sum(queries.value(table, _bytes(table)) for table in (memory_items, agent_events)),
        pending=backlog.pending if backlog else 0,
        failed=backlog.failed if backlog else 0,
        oldest_pending_seconds=None if not oldest else max(0, now_ms() - oldest) // 1000,
    )


class _ProjectQueries:
    """Aggregates over the rows of one project."""

    def __init__(self, connection: Connection, caller: Caller, project_id: str) -> None:
        self._connection = connection
        self._caller = caller
        self._project_id = project_id

    def value(self, table: Table, aggregate: ColumnElement[int]) -> int:
        statement = owned(table, self._caller, aggregate).where(table.c.project_id == self._project_id)
        return int(self._connection.scalar(statement) or 0)

    def counts(self, by: ColumnElement[Any]) -> dict[Any, int]:
        """Return the number of memories per value, ordered by value."""
        statement = owned(memory_items, self._caller, by, func.count()).where(_MEMORY.project_id == self._project_id)
        return dict(map(tuple, self._connection.execute(statement.group_by(by).order_by(by))))


def _bytes(table: Table) -> ColumnElement[int]:
    stored = [func.coalesce(byte_length(column), 0) for column in table.c if _is_text(column)]
    return func.sum(sum(stored[1:], stored[0]))


def _is_text(column: Column[Any]) -> bool:
    return not issubclass(column.type.python_type, int)


def _date(day: int) -> str:
    return datetime.fromtimestamp(day * _DAY_MS / 1000, UTC).date().isoformat()
