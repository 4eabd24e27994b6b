"""SQLite: one file with concurrent readers and one writer, which waits for its turn before it takes a connection."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection

from app.store.engines import TURN_TIMEOUT_SECONDS, unavailable
from app.store.engines.failures import is_sqlite_outage
from app.store.engines.locks import FairLock, FileLock

_BUSY_TIMEOUT_MS: Final = 10_000


class SqliteEngines:
    """Separate connections for reading and writing; writers queue before they check one out."""

    def __init__(self, url: str, path: Path, *, readers: int) -> None:
        """Open the file lazily, with at most `readers` connections for reading."""
        self._path = path
        self._turns = FairLock()
        self._file_lock: FileLock | None = None
        self._reading = _engine(url, pool_size=readers, begin="BEGIN", query_only=True)
        self._writing = _engine(url, pool_size=1, begin="BEGIN IMMEDIATE", query_only=False)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection that sees one snapshot and cannot write. Never waits for writers."""
        with _translate_outages(), self._reading.connect() as connection:
            connection.begin()  # prepared statements bypass SQLAlchemy, which would begin only with its own
            yield connection

    @contextmanager
    def read_one(self) -> Iterator[Connection]:
        """Yield a connection for one prepared statement, which sees one snapshot without a transaction around it.

        BEGIN and ROLLBACK cost more than reading a row, because each releases the GIL and waits to get it back.
        """
        with _translate_outages(), self._reading.connect() as connection:
            yield connection

    @contextmanager
    def write(self, *, exclusive: bool) -> Iterator[Connection]:
        """Yield a connection that holds the write lock; commit on leaving, roll back on any exception.

        BEGIN IMMEDIATE, because a deferred transaction that reads and then writes fails at once with "locked", however
        long the busy timeout is. The turn comes before the connection, so a waiting writer holds nothing that others
        need. SQLite has only one writer, so `exclusive` makes no difference.
        """
        with self.exclusive(), _translate_outages(), self._writing.begin() as connection:
            yield connection

    def insert(self, lock_names: Sequence[str]) -> AbstractContextManager[Connection]:
        """Yield a connection that only inserts rows, in a turn like every other writer."""
        return self.write(exclusive=True)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Exclude all other writers, in this process and others: for maintenance outside write()."""
        with self._turns.turn(TURN_TIMEOUT_SECONDS), self._writer_lock().held():
            yield

    @contextmanager
    def advisory_lock(self, name: str, *, wait: bool) -> Iterator[bool]:
        """Hold a named lock across all processes; yield whether it was acquired."""
        lock = FileLock(self._path.with_name(f"{self._path.name}-{name}.lock"))
        try:
            if wait:
                with lock.held():
                    yield True
            else:
                yield lock.acquire(timeout_seconds=0)
        finally:
            lock.close()

    def close(self) -> None:
        """Close every connection."""
        self._reading.dispose()
        self._writing.dispose()
        if self._file_lock is not None:
            self._file_lock.close()
            self._file_lock = None

    def _writer_lock(self) -> FileLock:
        if self._file_lock is None:
            try:
                self._file_lock = FileLock(self._path.with_name(self._path.name + "-writer.lock"))
            except OSError as cause:
                raise unavailable(cause) from cause
        return self._file_lock


def _engine(url: str, *, pool_size: int, begin: str, query_only: bool) -> Engine:
    # isolation_level None, because the driver's own BEGIN would come too late and be deferred
    engine = create_engine(
        url,
        pool_size=pool_size,
        max_overflow=0,
        pool_timeout=TURN_TIMEOUT_SECONDS,
        connect_args={"isolation_level": None, "check_same_thread": False},
    )

    @event.listens_for(engine, "connect")
    def _configure(connection: sqlite3.Connection, _: object) -> None:
        configure(connection, query_only=query_only)

    @event.listens_for(engine, "begin")
    def _begin(connection: Connection) -> None:
        connection.connection.cursor().execute(begin)

    return engine


def configure(connection: sqlite3.Connection, *, query_only: bool = False) -> None:
    """Apply the settings that all our connections rely on.

    synchronous=FULL makes acknowledged writes survive power loss; secure_delete overwrites what was deleted.
    """
    for pragma in (
        f"busy_timeout = {_BUSY_TIMEOUT_MS}",
        "journal_mode = WAL",
        "synchronous = FULL",
        "foreign_keys = ON",
        "secure_delete = ON",
        "journal_size_limit = 67108864",
        "temp_store = MEMORY",
        f"query_only = {'ON' if query_only else 'OFF'}",
    ):
        connection.execute(f"PRAGMA {pragma}")


@contextmanager
def _translate_outages() -> Iterator[None]:
    """Raise Unavailable for outages of the disk or the lock; an error in a statement stays the bug that it is."""
    try:
        yield
    except NoConnection as cause:
        raise unavailable(cause) from cause
    except (DBAPIError, sqlite3.Error) as cause:  # BEGIN bypasses SQLAlchemy, and raises the driver's own error
        reason = getattr(cause, "orig", cause)
        if not is_sqlite_outage(reason):
            raise
        raise unavailable(reason) from cause
