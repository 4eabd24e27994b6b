"""Can requests be served? Reading is tried when asked, writing and the pages in the background: never per request."""

import sqlite3
import time
from dataclasses import dataclass
from typing import Final

import psycopg
from sqlalchemy import literal, select, text
from sqlalchemy.exc import DBAPIError

from app.errors import AppError
from app.store.database import Database
from app.store.maintenance import dialects
from app.store.models import metadata
from app.store.schema import migrations

OK: Final = "ok"

_SQLITE_CAUSES: Final = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_CORRUPT: "it is corrupt",
    sqlite3.SQLITE_NOTADB: "it is corrupt",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk fails",
    sqlite3.SQLITE_BUSY: "another program keeps it locked",
}
_POSTGRESQL_CAUSES: Final = {
    "53100": "the disk is full",
    "25006": "it is read-only",
    "XX001": "it is corrupt",
    "XX002": "it is corrupt",
    "58": "the disk fails",
    "53300": "it has no connection left",
    "53": "it has no room left",
    "55P03": "another program keeps it locked",
    "57014": "it did not answer in time",
    "57": "it is starting or stopping",
    "28": "it does not let this role in",
    "42501": "this role lacks a right",
    "42P01": "a table is missing",
    "3D000": "there is none of this name",
}
"""By the beginning of the SQLSTATE; the first that fits is told."""
_UNREACHABLE: Final = "it cannot be reached"
_PAGES_SHARE: Final = 100
"""Reading every page rests so many times as long as it took: it costs a hundredth of the disk's time."""


@dataclass
class Readiness:
    """What the last trial of each part said: `ok`, or what is wrong and why."""

    database: Database
    writable: str = OK
    pages: str = OK
    _look_again_at_seconds: float = 0.0

    def try_writing(self) -> None:
        """Commit something that changes nothing: a full disk, a read-only file or a table that is gone shows."""
        try:
            with self.database.write() as connection:
                connection.execute(text("UPDATE alembic_version SET version_num = version_num"))
                for table in metadata.tables.values():
                    connection.execute(select(literal(1)).select_from(table).limit(1))
            self.writable = OK
        except (AppError, DBAPIError, OSError) as failure:
            self.writable = f"not writable{_because(failure)}"

    def look_at_pages(self) -> None:
        """Have every page looked at, unless that was done lately: damage that no request has met yet shows."""
        if (started := time.monotonic()) < self._look_again_at_seconds:
            return
        try:
            with self.database.read() as connection:
                damaged = dialects.of(self.database.dialect).damaged_pages(connection, limit=1)
            self.pages = "not whole: it is corrupt" if damaged else OK
        except (AppError, DBAPIError) as failure:
            self.pages = f"not whole{_because(failure)}"
        ended = time.monotonic()
        self._look_again_at_seconds = ended + (ended - started) * _PAGES_SHARE

    def of_database(self) -> tuple[str, str]:
        """Return the state of the database and of its migrations, each `ok` or a sentence."""
        try:
            with self.database.read() as connection:
                revision = connection.scalar(text("SELECT version_num FROM alembic_version"))
        except (AppError, DBAPIError) as failure:
            return f"not readable{_because(failure)}", "unknown"
        at_head = revision == migrations.head()
        state = self.writable if self.pages == OK else self.pages
        return state, OK if at_head else f"at revision {revision}, needed is {migrations.head()}"


def _because(failure: BaseException) -> str:
    """Return the cause in words, when the database names one that an operator can do something about."""
    at: BaseException | None = failure
    while at is not None:
        if known := _cause(getattr(at, "orig", at)):
            return f": {known}"
        at = at.__cause__
    return ""


def _cause(failure: object) -> str | None:
    """Return what an error of a driver stands for."""
    if isinstance(failure, sqlite3.Error):
        return _SQLITE_CAUSES.get(getattr(failure, "sqlite_errorcode", 0) & 0xFF)
    if isinstance(failure, psycopg.Error) and failure.sqlstate:
        return next((cause for state, cause in _POSTGRESQL_CAUSES.items() if failure.sqlstate.startswith(state)), None)
    return _UNREACHABLE if isinstance(failure, psycopg.OperationalError) else None
