"""Opens connections and begins transactions: one contract, one module per dialect."""

from collections.abc import Sequence
from contextlib import AbstractContextManager
from typing import Any, Final, Literal, Protocol

import structlog
from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from app.errors import Unavailable

_log = structlog.get_logger(__name__)

Dialect = Literal["sqlite", "postgresql"]

TURN_TIMEOUT_SECONDS: Final = 10.0
"""How long to wait for a connection, or for the turn to write."""


class Engines(Protocol):
    """The connections of one database."""

    def read(self) -> AbstractContextManager[Connection]:
        """Yield a connection that sees one snapshot and cannot write."""

    def read_one(self) -> AbstractContextManager[Connection]:
        """Yield a connection for one prepared statement, which sees one snapshot."""

    def write(self, *, exclusive: bool) -> AbstractContextManager[Connection]:
        """Yield a connection that may write; commit on leaving, roll back on any exception."""

    def insert(self, lock_names: Sequence[str]) -> AbstractContextManager[Connection]:
        """Yield a connection that only inserts rows, holding an exclusive lock of each name."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Exclude all other writers, where writers exclude each other at all."""

    def advisory_lock(self, name: str, *, wait: bool) -> AbstractContextManager[bool]:
        """Hold a named lock across all processes; with `wait=False`, yield False when another process holds it."""

    def close(self) -> None:
        """Close every connection."""


def unavailable(reason: object, meaning: type[Unavailable] = Unavailable) -> Unavailable:
    """Log why the database cannot answer, and return the error for the client."""
    _log.error("database_unavailable", reason=str(reason), meaning=meaning.__name__)
    return meaning("The database is unavailable at the moment.")


def as_sqlalchemy_error(failure: Exception, connection: Connection, sql: str, values: Any = None) -> BaseException:
    """Wrap a driver's exception in the one that SQLAlchemy would raise."""
    driver = connection.dialect.loaded_dbapi
    return DBAPIError.instance(sql, values, failure, driver.Error, dialect=connection.dialect)


def is_duplicate_row(failure: object) -> bool:
    """Say whether a driver's exception means that the row violates a unique constraint."""
    if (state := getattr(failure, "sqlstate", None)) is not None:
        return bool(state == "23505")
    message = str(failure)  # from SQLite itself, or from a trigger that fires before its constraint
    return message.startswith("UNIQUE constraint failed") or message.endswith("there is such a row already")
