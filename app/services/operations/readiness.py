"""Can requests be served? Reads are tried on request; writes and pages are checked in the background."""

import time
from dataclasses import dataclass
from typing import Final

from sqlalchemy import literal, select, text
from sqlalchemy.exc import DBAPIError

from app.errors import AppError
from app.store.database import Database
from app.store.engines import failures
from app.store.maintenance import dialects
from app.store.models import metadata
from app.store.schema import migrations

OK: Final = "ok"

_PAGE_CHECK_PAUSE: Final = 100
"""After reading every page, pause 100 times as long: the check then takes at most 1 % of the disk's time."""


@dataclass
class Readiness:
    """The latest state of each part: `ok`, or what is wrong and why."""

    database: Database
    writable: str = OK
    pages: str = OK
    _next_page_check_seconds: float = 0.0

    def try_writing(self) -> None:
        """Commit a no-op update, to detect a full disk, a read-only database or a missing table."""
        try:
            with self.database.write() as connection:
                connection.execute(text("UPDATE alembic_version SET version_num = version_num"))
                for table in metadata.tables.values():
                    connection.execute(select(literal(1)).select_from(table).limit(1))
            self.writable = OK
        except (AppError, DBAPIError, OSError) as failure:
            self.writable = f"not writable{self._cause(failure)}"

    def check_pages(self) -> None:
        """Read every page unless that was done recently, to detect damage that no request has hit yet."""
        if (started := time.monotonic()) < self._next_page_check_seconds:
            return
        try:
            with self.database.read() as connection:
                damaged = dialects.of(self.database.dialect).damaged_pages(connection, limit=1)
            self.pages = "integrity check failed: it is corrupt" if damaged else OK
        except (AppError, DBAPIError) as failure:
            self.pages = f"integrity check failed{self._cause(failure)}"
        ended = time.monotonic()
        self._next_page_check_seconds = ended + (ended - started) * _PAGE_CHECK_PAUSE

    def of_database(self) -> tuple[str, str]:
        """Return the state of the database and of its migrations, each `ok` or what is wrong."""
        try:
            with self.database.read() as connection:
                revision = connection.scalar(text("SELECT version_num FROM alembic_version"))
        except (AppError, DBAPIError) as failure:
            return f"not readable{self._cause(failure)}", "unknown"
        head = migrations.head()
        state = self.writable if self.pages == OK else self.pages
        return state, OK if revision == head else f"at revision {revision}, expected {head}"

    def _cause(self, failure: BaseException) -> str:
        """Return `: cause` when the database names one that an operator can act on, else nothing."""
        cause = failures.describe(failure, self.database.dialect)
        return f": {cause}" if cause else ""
