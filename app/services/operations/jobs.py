"""Operations: long-running work that is queued and runs once in the background, with progress and a result."""

import os
import threading
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal

import structlog
from sqlalchemy import Connection, and_, or_, update

from app.caller import SERVER_ADMIN, TEAM_ADMIN, Caller
from app.clock import new_id, now_ms
from app.errors import NotFound
from app.services.audit import entries
from app.store.database import Database
from app.store.models import operations
from app.store.records import Record, columns
from app.store.scope import owned, unscoped

_log = structlog.get_logger(__name__)

Status = Literal["pending", "running", "done", "failed"]

_POLL_SECONDS: Final = 0.5
_HEARTBEAT_MS: Final = 2_000
_DEAD_AFTER_MS: Final = 60_000


class Operation(Record, frozen=True):
    """Long-running work. `done` counts up to `total` where that is known."""

    id: str
    team_id: str | None
    project_id: str | None
    kind: str
    status: Status
    done: int
    total: int | None
    arguments: dict[str, Any]
    result: dict[str, Any]
    error: str | None
    created_by: str | None
    created_at_epoch: int
    finished_at_epoch: int | None


Progress = Callable[[int, int | None], None]
"""Called with `done` and `total`. Raises OperationInterrupted when the server stops."""
Handler = Callable[[Operation, Progress], dict[str, Any]]


class OperationInterrupted(Exception):
    """The server is stopping: the operation is resumed after the next start."""


_COLUMNS: Final = columns(operations, Operation)


def create(
    connection: Connection, caller: Caller, kind: str, *, project_id: str | None, arguments: dict[str, Any]
) -> Operation:
    """Queue an operation. Callers check the scope of the API key themselves."""
    created = Operation(
        id=new_id(),
        team_id=caller.team_id,
        project_id=project_id,
        kind=kind,
        status="pending",
        done=0,
        total=None,
        arguments=arguments,
        result={},
        error=None,
        created_by=caller.key_id,
        created_at_epoch=now_ms(),
        finished_at_epoch=None,
    )
    connection.execute(operations.insert().values({name: getattr(created, name) for name in created.__struct_fields__}))
    entries.record(connection, caller, kind, target=("operation", created.id), project_id=project_id)
    return created


def get(connection: Connection, caller: Caller, operation_id: str) -> Operation:
    """Return an operation of the caller's team, or a server-wide one to the server itself. Raises NotFound."""
    caller.require(SERVER_ADMIN if caller.team_id is None else TEAM_ADMIN)
    statement = (
        owned(operations, caller, *_COLUMNS)
        if caller.team_id is not None
        else unscoped(operations, *_COLUMNS).where(operations.c.team_id.is_(None))
    )
    row = connection.execute(statement.where(operations.c.id == operation_id)).first()
    if row is None:
        raise NotFound("operation")
    return Operation(*row)


class Runner:
    """Runs pending operations one at a time in its own thread, including those of a server that died."""

    def __init__(self, database: Database, handlers: Mapping[str, Handler]) -> None:
        """`handlers` maps each kind of operation that this server can run to the function that runs it."""
        self._database = database
        self._handlers = handlers
        self._owner = f"{os.getpid()}-{new_id()}"
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread."""
        self._thread = threading.Thread(target=self._run, name="operations", daemon=True)
        self._thread.start()

    def close(self, *, grace_seconds: float = 3.0) -> None:
        """Stop; a running operation is released, and resumed after the next start."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(grace_seconds)

    def run_next(self) -> bool:
        """Run the oldest pending operation; return False when there is none."""
        operation = self._claim()
        if operation is None:
            return False
        try:
            result = self._handlers[operation.kind](operation, self._progress_of(operation))
        except OperationInterrupted:
            self._update(operation, status="pending", owner=None)
        except Exception as failure:  # noqa: BLE001 - reported with the operation; others must still run
            _log.exception("operation_failed", operation=operation.id, kind=operation.kind)
            self._update(operation, status="failed", error=str(failure)[:500], finished_at_epoch=now_ms())
        else:
            self._update(operation, status="done", result=result, finished_at_epoch=now_ms())
        return True

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                was_busy = self.run_next()
            except Exception:  # noqa: BLE001 - the database may be back in the next round
                _log.exception("operations_round_failed")
                was_busy = False
            if not was_busy:
                self._stop.wait(_POLL_SECONDS)

    def _claim(self) -> Operation | None:
        """Claim the oldest operation that is pending, or whose server has sent no heartbeat for a minute."""
        is_orphaned = and_(
            operations.c.status == "running", operations.c.heartbeat_at_epoch < now_ms() - _DEAD_AFTER_MS
        )
        waiting = unscoped(operations, *_COLUMNS).where(
            operations.c.kind.in_(list(self._handlers)), or_(operations.c.status == "pending", is_orphaned)
        )
        with self._database.read() as connection:
            if connection.execute(waiting.limit(1)).first() is None:
                return None
        with self._database.write() as connection:
            oldest = waiting.order_by(operations.c.created_at_epoch).limit(1).with_for_update(skip_locked=True)
            row = connection.execute(oldest).first()
            if row is None:
                return None
            mine = {"status": "running", "owner": self._owner, "heartbeat_at_epoch": now_ms()}
            connection.execute(update(operations).where(operations.c.id == row.id).values(mine))
        return Operation(*row)

    def _progress_of(self, operation: Operation) -> Progress:
        last = 0

        def progress(done: int, total: int | None) -> None:
            nonlocal last
            if self._stop.is_set():
                raise OperationInterrupted
            if now_ms() - last >= _HEARTBEAT_MS:
                last = now_ms()
                self._update(operation, done=done, total=total, heartbeat_at_epoch=last)

        return progress

    def _update(self, operation: Operation, **values: Any) -> None:
        mine = and_(operations.c.id == operation.id, operations.c.owner == self._owner)
        with self._database.write() as connection:
            connection.execute(update(operations).where(mine).values(values))
