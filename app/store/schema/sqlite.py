"""SQLite: a file lock among processes, one immediate transaction, foreign keys compared before it commits."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

from sqlalchemy import Connection, create_engine
from sqlalchemy.pool import NullPool

from app.errors import AppError, Unavailable
from app.store.database import path_of
from app.store.engines.locks import FileLock
from app.store.engines.sqlite import configure

SCRIPTS: Final = "versions"
_LOCK_TIMEOUT_SECONDS: Final = 120.0


class LostRows(AppError):
    """The migration was undone: rows would have lost their parent."""


@contextmanager
def alone(url: str) -> Iterator[None]:
    """Let one process migrate at a time; the folder is made."""
    path = path_of(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(path.name + "-migration.lock"))
    try:
        if not lock.acquire(timeout_seconds=_LOCK_TIMEOUT_SECONDS):
            raise Unavailable("Another process is migrating the database.")
        yield
    finally:
        lock.close()


def current(url: str) -> str | None:
    """Return the revision of a database, None when it is empty or not there. Not a byte of the file is changed."""
    path = path_of(url)
    if not path.exists():
        return None
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone():
            return None
        found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return found[0] if found else None


@contextmanager
def changing(url: str) -> Iterator[Connection]:
    """Yield a connection in one transaction, committed in the end unless rows would have lost their parent."""
    with connected(url) as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        lost_before = _orphans(connection)
        yield connection
        if lost := _orphans(connection) - lost_before:
            raise LostRows(f"The migration was undone: it would leave {len(lost)} rows without their parent.")
        connection.commit()


@contextmanager
def connected(url: str) -> Iterator[Connection]:
    """Yield a connection with foreign keys off, which SQLite only allows outside a transaction."""
    engine = create_engine(url, poolclass=NullPool, connect_args={"isolation_level": None})
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - the URL said so
        _prepare(raw)
        yield connection


def _orphans(connection: Connection) -> set[tuple[Any, ...]]:
    """Return the rows without their parent; those that a writer with foreign keys off left must not stop an upgrade."""
    return {(table, row) for table, row, *_ in connection.exec_driver_sql("PRAGMA foreign_key_check")}


def _prepare(raw: sqlite3.Connection) -> None:
    with closing(raw.execute("PRAGMA page_count")) as cursor:
        if cursor.fetchone()[0] == 0:
            raw.execute("PRAGMA auto_vacuum = INCREMENTAL")  # can only be chosen before the first table
    configure(raw)
    raw.execute("PRAGMA foreign_keys = OFF")
