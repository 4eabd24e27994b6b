"""Marks a database as in use: shared by any number of servers and commands, or exclusive for one that replaces it.

On SQLite this is a file lock, on PostgreSQL an advisory lock that an idle transaction holds.
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
from app.store.engines.postgres_url import parse_url
from app.store.engines.postgresql import APPLICATION_NAME

_GRACE_SECONDS: Final = 2.0
"""A connection that was just closed, or whose process was killed, remains visible for a moment."""
_LOCK: Final = "hashtextextended('cmem-server users', 0)"
_COUNT_USERS: Final = text(
    "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = :name"
)


@contextmanager
def shared(url: str) -> Iterator[None]:
    """Use the database together with others; Conflict while a command has exclusive use."""
    with _hold(url, exclusive=False) as is_held:
        if not is_held:
            raise Conflict("The database is being restored; try again when that is done.")
        yield


@contextmanager
def exclusive(url: str) -> Iterator[None]:
    """Have exclusive use of the database; Conflict while a server or another command uses it."""
    with _hold(url, exclusive=True) as is_held:
        if not is_held:
            raise Conflict("A server or another command uses this database: stop it first.")
        yield


def _hold(url: str, *, exclusive: bool) -> AbstractContextManager[bool]:
    hold = _hold_advisory_lock if dialect_of(url) == "postgresql" else _hold_file_lock
    return hold(url, exclusive=exclusive)


@contextmanager
def _hold_file_lock(url: str, *, exclusive: bool) -> Iterator[bool]:
    path = path_of(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(f"{path.name}-users.lock"))
    try:
        yield lock.try_acquire(exclusive=exclusive)
    finally:
        lock.close()


@contextmanager
def _hold_advisory_lock(url: str, *, exclusive: bool) -> Iterator[bool]:
    """Hold the lock. A server that lost it with its connection still counts, by its other connections."""
    address, options = parse_url(url)
    options |= {"application_name": f"{APPLICATION_NAME} present"}
    engine = create_engine(address, poolclass=NullPool, connect_args=options)
    try:
        connection = engine.connect()
    except OperationalError:
        if exclusive:
            raise
        yield True  # nobody can use the database: the caller's own connections will report that
        return
    with connection:
        yield _acquire(connection, exclusive=exclusive) and not (exclusive and _is_used(connection))


def _acquire(connection: Connection, *, exclusive: bool) -> bool:
    function = "pg_advisory_xact_lock" if exclusive else "pg_advisory_xact_lock_shared"
    connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
    connection.execute(text(f"SET LOCAL lock_timeout = '{_GRACE_SECONDS}s'"))
    try:
        connection.execute(text(f"SELECT {function}({_LOCK})"))
    except DBAPIError as failure:
        if getattr(failure.orig, "sqlstate", None) != "55P03":  # lock_not_available
            raise
        return False
    return True


def _is_used(connection: Connection) -> bool:
    give_up_at = time.monotonic() + _GRACE_SECONDS
    while connection.scalar(_COUNT_USERS, {"name": APPLICATION_NAME}):
        if time.monotonic() > give_up_at:
            return True
        time.sleep(0.05)
        connection.execute(text("SELECT pg_stat_clear_snapshot()"))
    return False
