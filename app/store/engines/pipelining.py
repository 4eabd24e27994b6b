"""Statements that nobody waits for: PostgreSQL gets them with the next one, or with COMMIT, in one round trip.

To write a memory takes six statements, and three round trips: it begins and looks for the project, looks for a repeat,
stores, notes who did it and commits. The team's next write waits no longer than that.
See https://www.postgresql.org/docs/15/libpq-pipeline-mode.html.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.errors import PipelineAborted
from sqlalchemy import Connection

from app.store.engines import as_sqlalchemys

_TRANSACTION: Final = "transaction"
"""Where a connection keeps its transaction."""
_MOST_WAITING: Final = 100


class Statement(NamedTuple):
    """SQL for psycopg, and its values."""

    sql: str
    values: Any = None


class _Transaction:
    """The statements that are not sent yet; those that begin it are sent with the first other one."""

    def __init__(self, beginning: Sequence[Statement]) -> None:
        self.waiting = list(beginning)
        self.is_empty = True


def begin(connection: Connection, *beginning: Statement) -> None:
    """Begin a transaction with these statements, once there is another one."""
    connection.info[_TRANSACTION] = _Transaction(beginning)


def is_open(connection: Connection) -> bool:
    """Say whether a transaction has begun here."""
    return _TRANSACTION in connection.info


def put_off(connection: Connection, statement: Statement) -> None:
    """Have a statement sent with the next one, which raises what becomes of both; or the commit does."""
    transaction: _Transaction = connection.info[_TRANSACTION]
    transaction.is_empty = False
    transaction.waiting.append(statement)
    if len(transaction.waiting) >= _MOST_WAITING:
        send_waiting(connection)


def execute(connection: Connection, statement: Statement) -> psycopg.Cursor[Any]:
    """Run a statement after all that wait; failures are SQLAlchemy's."""
    transaction: _Transaction = connection.info[_TRANSACTION]
    transaction.is_empty = False
    sending, transaction.waiting = [*transaction.waiting, statement], []
    return _send(connection, sending)


def send_waiting(connection: Connection) -> None:
    """Send what waits, for whoever is about to use the connection in another way."""
    transaction: _Transaction | None = connection.info.get(_TRANSACTION)
    if transaction is None:
        return
    transaction.is_empty = False
    sending, transaction.waiting = transaction.waiting, []
    if sending:
        _send(connection, sending)


def driver(connection: Connection) -> psycopg.Connection[Any]:
    """Return psycopg's own connection, after all that waits was sent."""
    send_waiting(connection)
    return _driver(connection)


def commit(connection: Connection) -> None:
    """Send what waits, and COMMIT; nothing at all when no statement came.

    Raises RuntimeError when a failure that somebody caught has undone the transaction: the server says so, and no more.
    """
    transaction: _Transaction = connection.info[_TRANSACTION]
    if not transaction.is_empty and execute(connection, Statement("COMMIT")).statusmessage != "COMMIT":
        raise RuntimeError("A failure that was caught has undone the whole transaction.")


def end(connection: Connection) -> None:
    """Forget what waits; what was sent is committed, or the caller rolls it back."""
    if not connection.invalidated:  # a lost connection has taken it along
        del connection.info[_TRANSACTION]


def _send(connection: Connection, sending: Sequence[Statement]) -> psycopg.Cursor[Any]:
    """Run statements in one round trip; return what the last one gave."""
    psycopgs = _driver(connection)
    try:
        if len(sending) == 1:
            return psycopgs.execute(*sending[0])
        with psycopgs.pipeline():
            return [psycopgs.execute(*statement) for statement in sending][-1]
    except psycopg.Error as failure:
        cause = _first(failure)
        raise as_sqlalchemys(cause, connection, "; ".join(each.sql for each in sending)) from cause


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    return connection.connection.driver_connection  # type: ignore[return-value]


def _first(failure: psycopg.Error) -> psycopg.Error:
    """Return what failed, where another statement only tells that it was left out for that."""
    while isinstance(failure, PipelineAborted) and isinstance(failure.__context__, psycopg.Error):
        failure = failure.__context__
    return failure
