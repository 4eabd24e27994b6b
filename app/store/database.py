"""Database: read() sees one snapshot, write() takes turns and commits on leaving. The engines do the work."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from copy import copy
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, make_url

from app.store.engines import Dialect, Engines, pipelining
from app.store.engines.postgresql import PostgresqlEngines
from app.store.engines.sqlite import SqliteEngines

SQLITE: Final = "sqlite:///"


def dialect_of(url: str) -> Dialect:
    """Return the dialect of a URL."""
    return "postgresql" if url.startswith("postgresql") else "sqlite"


class Database:
    """One database, of either dialect. Every method that yields a connection raises Unavailable during an outage."""

    def __init__(self, url: str, *, readers: int = 8, writers: int = 4) -> None:
        """Open `url` (sqlite:///PATH, postgresql+psycopg://…) lazily; the folder of a file is created.

        `readers` and `writers` limit the number of connections; SQLite has one writer.
        """
        self.url = url
        self.dialect: Dialect = dialect_of(url)
        self._engines = _engines(url, readers, writers)
        self._final_check: Callable[[], None] | None = None

    @property
    def path(self) -> Path:
        """The file of an SQLite database; ValueError for another."""
        return path_of(self.url)

    def read(self) -> AbstractContextManager[Connection]:
        """Yield a connection that sees one snapshot and cannot write. Never waits for writers."""
        return self._checked(self._engines.read())

    def read_one(self) -> AbstractContextManager[Connection]:
        """Yield a connection for one prepared statement, which sees one snapshot: the cheapest way to read a row."""
        return self._checked(self._engines.read_one())

    def write(self, *, exclusive: bool = True) -> AbstractContextManager[Connection]:
        """Yield a connection whose turn it is to write; commit on leaving, roll back on any exception.

        On PostgreSQL the turn is taken by the first statement, and a connection that is lost before COMMIT is sent
        raises NothingDone. `exclusive=False` is for work that locks its own rows, and so need not take turns there.
        """
        return self._checked(self._engines.write(exclusive=exclusive))

    def insert(self, *lock_names: str) -> AbstractContextManager[Connection]:
        """Yield a connection that only inserts rows; commit on leaving, roll back on any exception.

        Where the database allows concurrent writes, other inserts run meanwhile, but no exclusive write: existing rows
        do not change. Raises NothingDone when a concurrent insert added the same row. Inserts with a name in
        `lock_names` in common run one at a time.
        """
        return self._checked(self._engines.insert(lock_names))

    def exclusive(self) -> AbstractContextManager[None]:
        """Exclude all other writers, in every process, where writers exclude each other at all."""
        return self._engines.exclusive()

    def advisory_lock(self, name: str, *, wait: bool = True) -> AbstractContextManager[bool]:
        """Hold a named lock across all processes; with `wait=False`, yield False when another process holds it."""
        return self._engines.advisory_lock(name, wait=wait)

    def with_final_check(self, check: Callable[[], None]) -> "Database":
        """Return this database with a check at the end of every transaction, before it commits.

        When the check raises, the transaction is rolled back. An error of the transaction itself comes first.
        """
        checked = copy(self)
        checked._final_check = check
        return checked

    def close(self) -> None:
        """Close every connection."""
        self._engines.close()

    def _checked(self, transaction: AbstractContextManager[Connection]) -> AbstractContextManager[Connection]:
        return transaction if self._final_check is None else _run_check(transaction, self._final_check)


@contextmanager
def _run_check(transaction: AbstractContextManager[Connection], check: Callable[[], None]) -> Iterator[Connection]:
    with transaction as connection:
        yield connection
        pipelining.flush(connection)  # the errors of queued statements come first
        check()


def path_of(url: str) -> Path:
    """Return the file of an SQLite URL; ValueError for another."""
    if not url.startswith(SQLITE):
        raise ValueError("only an SQLite database is a file")
    return Path(make_url(url).database or "")


def _engines(url: str, readers: int, writers: int) -> Engines:
    if dialect_of(url) == "postgresql":
        return PostgresqlEngines(url, readers=readers, writers=writers)
    path = path_of(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    return SqliteEngines(url, path, readers=readers)
