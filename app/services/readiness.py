"""Can requests be served? Reading is tried when asked, writing in the background: never per request."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import text
from sqlalchemy.exc import DBAPIError

from app.errors import AppError
from app.store import migrations
from app.store.database import Database

OK: Final = "ok"


@dataclass
class Readiness:
    """What the last trial of each part said: `ok`, or a sentence."""

    database: Database
    writable: str = OK

    def try_writing(self) -> None:
        """Commit something that changes nothing, so that a full disk or a read-only file shows."""
        try:
            with self.database.write() as connection:
                connection.execute(text("UPDATE alembic_version SET version_num = version_num"))
            self.writable = OK
        except (AppError, DBAPIError, OSError):
            self.writable = "not writable"

    def of_database(self) -> tuple[str, str]:
        """Return the state of the database and of its migrations, each `ok` or a sentence."""
        try:
            with self.database.read() as connection:
                revision = connection.scalar(text("SELECT version_num FROM alembic_version"))
        except (AppError, DBAPIError):
            return "not readable", "unknown"
        at_head = revision == migrations.head()
        return self.writable, OK if at_head else f"at revision {revision}, needed is {migrations.head()}"
