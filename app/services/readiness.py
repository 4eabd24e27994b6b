"""Can requests be served? Reading is tried when asked, writing and the pages in the background: never per request."""

import sqlite3
import time
from dataclasses import dataclass
from typing import Final

from sqlalchemy import literal, select, text
from sqlalchemy.exc import DBAPIError

from app.errors import AppError
from app.store import migrations
from app.store.database import Database
from app.store.models import metadata

OK: Final = "ok"

_CAUSES: Final = {
    sqlite3.SQLITE_FULL: "the disk is full",
    sqlite3.SQLITE_READONLY: "it is read-only",
    sqlite3.SQLITE_CORRUPT: "it is corrupt",
    sqlite3.SQLITE_NOTADB: "it is corrupt",
    sqlite3.SQLITE_CANTOPEN: "it cannot be opened",
    sqlite3.SQLITE_IOERR: "the disk fails",
    sqlite3.SQLITE_BUSY: "another program keeps it locked",
}
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
        """Let SQLite read every page, unless it has done so lately: damage that no request has met yet shows."""
        if (started := time.monotonic()) < self._look_again_at_seconds:
            return
        try:
            with self.database.read() as connection:
                found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
            self.pages = OK if found == "ok" else "not whole: it is corrupt"
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
    """Return the cause in words, when SQLite names one that an operator can do something about."""
    at: BaseException | None = failure
    while at is not None:
        code = getattr(getattr(at, "orig", at), "sqlite_errorcode", None)
        if code is not None and (known := _CAUSES.get(code & 0xFF)):
            return f": {known}"
        at = at.__cause__
    return ""
