"""Who uses a database: any number of servers and commands together, or one that puts another in its place, alone.

On SQLite that is a lock on a file, on PostgreSQL one on a word, held by an idle transaction.
"""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from sqlalchemy import Connection, create_engine, text
from sqlalchemy.exc import DBAPIError, OperationalError
from sqlalchemy.pool import NullPool

from app.errors import Conflict
from app.store.database import dialect_of, path_of
from app.store.engines.locks import FileLock
from app.store.engines.postgres_url import connecting
from app.store.engines.postgresql import APPLICATION_NAME

_PATIENCE_SECONDS: Final = 2.0
"""A connection that was just closed, or whose process was killed, is there for a moment longer."""
_LOCK: Final = "hashtextextended('cmem-server users', 0)"
_OTHERS: Final = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = :name"
)


@contextmanager
def using(url: str) -> Iterator[None]:
    """Be one of those who use the database; Conflict while somebody replaces it."""
    with _held(url, exclusively=False) as is_held:
        if not is_held:
            raise Conflict("The database is being restored; try again when that is done.")
        yield


@contextmanager
def alone(url: str) -> Iterator[None]:
    """Be the only one; Conflict while a server or a command uses the database."""
    with _held(url, exclusively=True) as is_held:
        if not is_held:
            raise Conflict("A server or another command uses this database: stop it first.")
        yield


def _held(url: str, *, exclusively: bool) -> AbstractContextManager[bool]:
    held = _word_held if dialect_of(url) == "postgresql" else _file_held
    return held(url, exclusively=exclusively)


@contextmanager
def _file_held(url: str, *, exclusively: bool) -> Iterator[bool]:
    path = path_of(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f"{path.name}-users.lock"))
    try:
        yield lock.join(exclusively=exclusively)
    finally:
        lock.close()


@contextmanager
def _word_held(url: str, *, exclusively: bool) -> Iterator[bool]:
    """Hold the lock. A server that lost it with its connection is seen by the others that it has."""
    address, options = connecting(url)
    options |= {"application_name": f"{APPLICATION_NAME} present"}
    engine = create_engine(address, poolclass=NullPool, connect_args=options)
    try:
        connection = engine.connect()
    except OperationalError:
        if exclusively:
            raise
        yield True  # nobody can use it: whoever needs it is told so by his own connections
        return
    with connection:
        yield _locks(connection, exclusively=exclusively) and not (exclusively and _is_used(connection))


def _locks(connection: Connection, *, exclusively: bool) -> bool:
    verb = "pg_advisory_xact_lock" if exclusively else "pg_advisory_xact_lock_shared"
    connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
    connection.execute(text(f"SET LOCAL lock_timeout = '{_PATIENCE_SECONDS}s'"))
    try:
        connection.execute(text(f"SELECT {verb}({_LOCK})"))
    except DBAPIError as failure:
        if getattr(failure.orig, "sqlstate", None) != "55P03":  # lock_not_available
            raise
        return False
    return True


def _is_used(connection: Connection) -> bool:
    give_up_at = time.monotonic() + _PATIENCE_SECONDS
    while connection.scalar(_OTHERS, {"name": APPLICATION_NAME}):
        if time.monotonic() > give_up_at:
            return True
        time.sleep(0.05)
        connection.execute(text("SELECT pg_stat_clear_snapshot()"))
    return False
