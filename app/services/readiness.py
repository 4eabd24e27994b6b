"""Can requests be served? Reading is tried when asked, writing in the background: never per request."""

from dataclasses import dataclass
from typing import Final

from sqlalchemy import literal, select, text
from sqlalchemy.exc import DBAPIError

from app.errors import AppError
from app.store import migrations
from app.store.database import Database
from app.store.models import metadata

OK: Final = "ok"


@dataclass
class Readiness:
    """What the last trial of each part said: `ok`, or a sentence."""

    database: Database
    writable: str = OK

    def try_writing(self) -> None:
        """Commit something that changes nothing: a full disk, a read-only file or a table that is gone shows."""
        try:
            with self.database.write() as connection:
                connection.execute(text("UPDATE alembic_version SET version_num = version_num"))
                for table in metadata.tables.values():
                    connection.execute(select(literal(1)).select_from(table).limit(1))
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
