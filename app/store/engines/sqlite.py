"""SQLite: one file, readers beside one writer, who has his turn before he has a connection."""

import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Final

from sqlalchemy import Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError
from sqlalchemy.exc import TimeoutError as NoConnection

from app.store.engines import TURN_TIMEOUT_SECONDS, unavailable
from app.store.engines.locks import FairLock, FileLock

_BUSY_TIMEOUT_MS: Final = 10_000

_CANNOT_ANSWER: Final = frozenset(
    {
        sqlite3.SQLITE_BUSY,
        sqlite3.SQLITE_LOCKED,
        sqlite3.SQLITE_NOMEM,
        sqlite3.SQLITE_READONLY,
        sqlite3.SQLITE_IOERR,
        sqlite3.SQLITE_CORRUPT,
        sqlite3.SQLITE_FULL,
        sqlite3.SQLITE_CANTOPEN,
        sqlite3.SQLITE_PROTOCOL,
        sqlite3.SQLITE_NOTADB,
    }
)
"""SQLite's result codes that tell of the disk or of others, and not of a mistake in a statement."""


class SqliteEngines:
    """Reads and writes have connections of their own; writers queue before they check one out."""

    def __init__(self, url: str, path: Path, *, readers: int) -> None:
        """Open the file lazily; `readers` bounds the connections that read."""
        self._path = path
        self._turns = FairLock()
        self._file_lock: FileLock | None = None
        self._reading = _engine(url, pool_size=readers, begin="BEGIN", query_only=True)
        self._writing = _engine(url, pool_size=1, begin="BEGIN IMMEDIATE", query_only=False)

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection that sees one snapshot and cannot write. Never waits for writers."""
        with _outages_named(), self._reading.connect() as connection:
            connection.begin()  # prepared statements go to the driver, past SQLAlchemy's own beginning
            yield connection

    @contextmanager
    def glance(self) -> Iterator[Connection]:
        """Yield a connection for one prepared statement, which sees one snapshot without a transaction around it.

        BEGIN and ROLLBACK cost more than reading a row does, since each gives the interpreter away and waits for it.
        """
        with _outages_named(), self._reading.connect() as connection:
            yield connection

    @contextmanager
    def write(self, *, in_turn: bool) -> Iterator[Connection]:
        """Yield a connection that holds the write lock; commit on leaving, roll back on any exception.

        BEGIN IMMEDIATE: a deferred transaction that reads and then writes fails at once with "locked", whatever the
        busy timeout says. The turn is taken before a connection is: a waiting writer holds nothing that others need.
        There is one writer, whether he asks for his turn or not.
        """
        with self.exclusive(), _outages_named(), self._writing.begin() as connection:
            yield connection

    def append(self, alone_in: Sequence[str]) -> AbstractContextManager[Connection]:
        """Yield a connection that only adds rows, in a turn of its own like every writer."""
        return self.write(in_turn=True)

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """Let no other writer of this or any process work meanwhile: for maintenance outside write()."""
        with self._turns.turn(TURN_TIMEOUT_SECONDS), self._others().held():
            yield

    @contextmanager
    def alone(self, name: str, *, wait: bool) -> Iterator[bool]:
        """Be the only one of all processes inside the block of this name."""
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

    def _others(self) -> FileLock:
        if self._file_lock is None:
            try:
                self._file_lock = FileLock(self._path.with_name(self._path.name + "-writer.lock"))
            except OSError as cause:
                raise unavailable(cause) from cause
        return self._file_lock


def _engine(url: str, *, pool_size: int, begin: str, query_only: bool) -> Engine:
    # isolation_level None: the driver's own BEGINs would come too late and be deferred
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
    """Set what every connection of ours relies on.

    synchronous=FULL makes an acknowledged write survive power loss; secure_delete overwrites what was deleted.
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
def _outages_named() -> Iterator[None]:
    """Turn the database's "I cannot" into Unavailable; a mistake in a statement stays the bug it is."""
    try:
        yield
    except NoConnection as cause:
        raise unavailable(cause) from cause
    except (DBAPIError, sqlite3.Error) as cause:  # BEGIN goes past SQLAlchemy, and fails as the driver's own error
        reason = getattr(cause, "orig", cause)
        code = getattr(reason, "sqlite_errorcode", None)
        if code is None or code & 0xFF not in _CANNOT_ANSWER:
            raise
        raise unavailable(reason) from cause
