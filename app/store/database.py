"""Database: read() sees one snapshot, write() takes its turn and commits on leaving. The engines know how."""

from contextlib import AbstractContextManager
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, make_url

from app.store.engines import Dialect, Engines
from app.store.engines.postgresql import PostgresqlEngines
from app.store.engines.sqlite import SqliteEngines

SQLITE: Final = "sqlite:///"


def dialect_of(url: str) -> Dialect:
    """Return which kind of database an address names."""
    return "postgresql" if url.startswith("postgresql") else "sqlite"


class Database:
    """One database, whatever keeps it."""

    def __init__(self, url: str, *, readers: int = 8, writers: int = 4) -> None:
        """Open `url` (sqlite:///PATH, postgresql+psycopg://…) lazily; a file's folder is made.

        `readers` and `writers` bound the connections; SQLite has one writer.
        """
        self.url = url
        self.dialect: Dialect = dialect_of(url)
        self._engines = _engines(url, readers, writers)

    @property
    def path(self) -> Path:
        """The file of an SQLite database."""
        return path_of(self.url)

    def read(self) -> AbstractContextManager[Connection]:
        """Yield a connection that sees one snapshot and cannot write. Never waits for writers."""
        return self._engines.read()

    def glance(self) -> AbstractContextManager[Connection]:
        """Yield a connection for one prepared statement, which sees one snapshot: the cheapest way to read a row."""
        return self._engines.glance()

    def write(self, *, in_turn: bool = True) -> AbstractContextManager[Connection]:
        """Yield a connection whose turn it is to write; commit on leaving, roll back on any exception.

        On PostgreSQL the turn comes with the first statement, and a connection that is lost before COMMIT is sent is
        NothingDone.
        `in_turn=False` is for work that locks its rows itself: where rows can be locked singly, it waits for nobody.
        """
        return self._engines.write(in_turn=in_turn)

    def append(self, *alone_in: str) -> AbstractContextManager[Connection]:
        """Yield a connection that only adds rows; commit on leaving, roll back on any exception.

        Others append meanwhile, where the database lets several write at once, but nobody who has his turn: what is
        looked at stays as it is. Of an equal row that is new, a unique constraint tells: raises NothingDone. `alone_in`
        names what only one at a time may add to.
        """
        return self._engines.append(alone_in)

    def exclusive(self) -> AbstractContextManager[None]:
        """Let no other writer of this or any process work meanwhile, where writers exclude each other at all."""
        return self._engines.exclusive()

    def alone(self, name: str, *, wait: bool = True) -> AbstractContextManager[bool]:
        """Be the only one of all processes inside the block of this name; False when another is and `wait` is not."""
        return self._engines.alone(name, wait=wait)

    def close(self) -> None:
        """Close every connection."""
        self._engines.close()


def path_of(url: str) -> Path:
    """Return the file that an SQLite address names; ValueError for another, whose database's name is no file."""
    if not url.startswith(SQLITE):
        raise ValueError("only an SQLite database is a file")
    return Path(make_url(url).database or "")


def _engines(url: str, readers: int, writers: int) -> Engines:
    if dialect_of(url) == "postgresql":
        return PostgresqlEngines(url, readers=readers, writers=writers)
    path = path_of(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    return SqliteEngines(url, path, readers=readers)
