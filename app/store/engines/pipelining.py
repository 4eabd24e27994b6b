"""Queues statements whose result nobody needs: PostgreSQL gets them with the next one, or with COMMIT.

Writing a memory takes six statements but only three round trips: begin and look up the project; look for a duplicate;
insert the memory and its audit entry, and commit. The team's next write does not wait longer than that.
See https://www.postgresql.org/docs/15/libpq-pipeline-mode.html.
"""

from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import psycopg
from psycopg.errors import PipelineAborted
from sqlalchemy import Connection

from app.store.engines import as_sqlalchemy_error

_TRANSACTION: Final = "transaction"
"""The key in `Connection.info` of the open transaction."""
_MAX_QUEUED: Final = 100


class Statement(NamedTuple):
    """SQL for psycopg, and its parameters."""

    sql: str
    values: Any = None


class _Transaction:
    """The statements not sent yet. Those that begin the transaction are sent with the first other one."""

    def __init__(self, beginning: Sequence[Statement]) -> None:
        self.queued = list(beginning)
        self.is_empty = True


def begin(connection: Connection, *beginning: Statement) -> None:
    """Begin a transaction with these statements, once another one is executed."""
    connection.info[_TRANSACTION] = _Transaction(beginning)


def is_open(connection: Connection) -> bool:
    """Say whether a transaction has begun on this connection."""
    return _TRANSACTION in connection.info


def queue(connection: Connection, statement: Statement) -> None:
    """Queue a statement to be sent with the next one, or with the commit, which then raises its error."""
    transaction: _Transaction = connection.info[_TRANSACTION]
    transaction.is_empty = False
    transaction.queued.append(statement)
    if len(transaction.queued) >= _MAX_QUEUED:
        flush(connection)


def execute(connection: Connection, statement: Statement) -> psycopg.Cursor[Any]:
    """Send all queued statements and this one; errors are raised as SQLAlchemy's."""
    transaction: _Transaction = connection.info[_TRANSACTION]
    transaction.is_empty = False
    batch, transaction.queued = [*transaction.queued, statement], []
    return _send(connection, batch)


def flush(connection: Connection) -> None:
    """Send the queued statements, before the connection is used in another way."""
    transaction: _Transaction | None = connection.info.get(_TRANSACTION)
    if transaction is None:
        return
    transaction.is_empty = False
    batch, transaction.queued = transaction.queued, []
    if batch:
        _send(connection, batch)


def driver(connection: Connection) -> psycopg.Connection[Any]:
    """Return psycopg's own connection, after sending the queued statements."""
    flush(connection)
    return _driver(connection)


def commit(connection: Connection) -> None:
    """Send the queued statements and COMMIT; send nothing at all when no statement was executed.

    Raises RuntimeError when an error that was caught has rolled back the transaction, because PostgreSQL then answers
    COMMIT with ROLLBACK and reports no error.
    """
    transaction: _Transaction = connection.info[_TRANSACTION]
    if not transaction.is_empty and execute(connection, Statement("COMMIT")).statusmessage != "COMMIT":
        raise RuntimeError("An error that was caught has rolled back the whole transaction.")


def end(connection: Connection) -> None:
    """Drop the queued statements; what was sent is committed, or the caller rolls it back."""
    if not connection.invalidated:  # invalidating a connection has cleared its info
        del connection.info[_TRANSACTION]


def _send(connection: Connection, batch: Sequence[Statement]) -> psycopg.Cursor[Any]:
    """Run statements in one round trip; return the cursor of the last one."""
    psycopg_connection = _driver(connection)
    try:
        if len(batch) == 1:
            return psycopg_connection.execute(*batch[0])
        with psycopg_connection.pipeline():
            return [psycopg_connection.execute(*statement) for statement in batch][-1]
    except psycopg.Error as failure:
        cause = _root_cause(failure)
        raise as_sqlalchemy_error(cause, connection, "; ".join(each.sql for each in batch)) from cause


def _driver(connection: Connection) -> psycopg.Connection[Any]:
    return connection.connection.driver_connection  # type: ignore[return-value]


def _root_cause(failure: psycopg.Error) -> psycopg.Error:
    """Return the error that made the server skip the statements after it."""
    while isinstance(failure, PipelineAborted) and isinstance(failure.__context__, psycopg.Error):
        failure = failure.__context__
    return failure
