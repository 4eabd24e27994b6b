"""What the drivers' errors mean: which of them are outages, and the cause in words that help an operator.

One table per dialect answers both questions. Everything that is in neither table is a bug in a statement of ours.
"""

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, NamedTuple

import psycopg

from app.store.engines import Dialect


class _Code(NamedTuple):
    """A driver's error code. `is_outage`: it is the server, the disk or another client that is at fault."""

    description: str | None
    is_outage: bool = True


_SQLITE: Final[Mapping[int, _Code]] = {
    sqlite3.SQLITE_FULL: _Code("the disk is full"),
    sqlite3.SQLITE_READONLY: _Code("it is read-only"),
    sqlite3.SQLITE_CORRUPT: _Code("it is corrupt"),
    sqlite3.SQLITE_NOTADB: _Code("it is corrupt"),
    sqlite3.SQLITE_CANTOPEN: _Code("it cannot be opened"),
    sqlite3.SQLITE_IOERR: _Code("disk I/O error"),
    sqlite3.SQLITE_BUSY: _Code("another process holds the lock"),
    sqlite3.SQLITE_LOCKED: _Code(None),
    sqlite3.SQLITE_NOMEM: _Code(None),
    sqlite3.SQLITE_PROTOCOL: _Code(None),
}
"""By primary result code."""

_POSTGRESQL: Final[Mapping[str, _Code]] = {
    "53100": _Code("the disk is full"),
    "25006": _Code("it is read-only"),
    "XX001": _Code("it is corrupt"),
    "XX002": _Code("it is corrupt"),
    "58": _Code("disk I/O error"),
    "53300": _Code("it has no connections left"),
    "53": _Code("it is out of resources"),
    "55P03": _Code("another process holds the lock"),
    "55": _Code(None),
    "57014": _Code("the statement timed out"),
    "57": _Code("it is starting or shutting down"),
    "28": _Code("it rejects the login of this role", is_outage=False),
    "42501": _Code("this role lacks a privilege", is_outage=False),
    "42P01": _Code("a table is missing", is_outage=False),
    "3D000": _Code("no database has this name", is_outage=False),
}
"""By the first characters of the SQLSTATE; the first match counts, so that a code comes before its class."""

_UNREACHABLE: Final = "it cannot be reached"


def describe(failure: BaseException, dialect: Dialect) -> str | None:
    """Return the cause of a failure in words, or None when the driver names none that an operator can act on."""
    return next((text for error in _driver_errors(failure) if (text := _DESCRIBE[dialect](error))), None)


def is_sqlite_outage(error: object) -> bool:
    """Say whether an error of sqlite3 tells of the disk or of another process, and not of a bug in a statement."""
    code = _of_result_code(error)
    return code is not None and code.is_outage


def is_postgresql_outage(sqlstate: str) -> bool:
    """Say whether a SQLSTATE tells of the server or of other clients, and not of a bug in a statement."""
    code = _of_sqlstate(sqlstate)
    return code is not None and code.is_outage


def _driver_errors(failure: BaseException) -> Iterator[Any]:
    """Yield a failure and its causes, each as the driver raised it."""
    current: BaseException | None = failure
    while current is not None:
        yield getattr(current, "orig", current)
        current = current.__cause__


def _describe_sqlite(error: object) -> str | None:
    code = _of_result_code(error) if isinstance(error, sqlite3.Error) else None
    return code.description if code else None


def _describe_postgresql(error: object) -> str | None:
    if isinstance(error, psycopg.Error) and error.sqlstate:
        code = _of_sqlstate(error.sqlstate)
        return code.description if code else None
    return _UNREACHABLE if isinstance(error, psycopg.OperationalError) else None


def _of_result_code(error: object) -> _Code | None:
    """Return what a code means; `& 0xFF` because SQLite's extended codes keep the primary one in the low byte."""
    return _SQLITE.get((getattr(error, "sqlite_errorcode", None) or 0) & 0xFF)


def _of_sqlstate(sqlstate: str) -> _Code | None:
    return next((code for prefix, code in _POSTGRESQL.items() if sqlstate.startswith(prefix)), None)


_DESCRIBE: Final[Mapping[Dialect, Callable[[object], str | None]]] = {
    "sqlite": _describe_sqlite,
    "postgresql": _describe_postgresql,
}
