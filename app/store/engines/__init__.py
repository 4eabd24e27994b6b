"""How connections are made and transactions begin: one contract, one module per dialect."""

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
"""How long anybody waits for a connection, or for his turn to write."""


class Engines(Protocol):
    """The connections of one database."""

    def read(self) -> AbstractContextManager[Connection]:
        """Yield a connection that sees one snapshot and cannot write."""

    def glance(self) -> AbstractContextManager[Connection]:
        """Yield a connection for one prepared statement, which sees one snapshot."""

    def write(self, *, in_turn: bool) -> AbstractContextManager[Connection]:
        """Yield a connection that may write; commit on leaving, roll back on any exception."""

    def append(self, alone_in: Sequence[str]) -> AbstractContextManager[Connection]:
        """Yield a connection that only adds rows, alone in what is named."""

    def exclusive(self) -> AbstractContextManager[None]:
        """Let no other writer work meanwhile, where writers exclude each other at all."""

    def alone(self, name: str, *, wait: bool) -> AbstractContextManager[bool]:
        """Be the only one of all processes inside the block of this name; False when another is and `wait` is not."""

    def close(self) -> None:
        """Close every connection."""


def unavailable(reason: object, meaning: type[Unavailable] = Unavailable) -> Unavailable:
    """Return the error that says that the database cannot answer, once the reason has been logged."""
    _log.error("database_unavailable", reason=str(reason), meaning=meaning.__name__)
    return meaning("The database cannot answer at the moment.")


def as_sqlalchemys(failure: Exception, connection: Connection, sql: str, values: Any = None) -> BaseException:
    """Return a failure of the driver as SQLAlchemy has it."""
    driver = connection.dialect.loaded_dbapi
    return DBAPIError.instance(sql, values, failure, driver.Error, dialect=connection.dialect)


def is_equal_row(failure: object) -> bool:
    """Say whether a driver's failure tells of a row that equals another one where none may."""
    if (state := getattr(failure, "sqlstate", None)) is not None:
        return bool(state == "23505")
    said = str(failure)  # SQLite's own words, or those of a guard that comes before it
    return said.startswith("UNIQUE constraint failed") or said.endswith("there is such a row already")
