"""SQLite migrations: a file lock between processes, one immediate transaction, foreign keys checked before commit."""

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


class OrphanedRows(AppError):
    """The migration was rolled back: rows would have lost their parent."""


@contextmanager
def migration_lock(url: str) -> Iterator[None]:
    """Let only one process migrate at a time; Unavailable after two minutes. The folder is created."""
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
    """Return the revision of a database, or None when it is empty or missing. The file is not changed."""
    path = path_of(url)
    if not path.exists():
        return None
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone():
            return None
        row = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return row[0] if row else None


@contextmanager
def migration_transaction(url: str) -> Iterator[Connection]:
    """Yield a connection in a transaction; it is committed unless rows would have lost their parent (OrphanedRows)."""
    with connect(url) as connection:
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        orphans_before = _orphans(connection)
        yield connection
        if new_orphans := _orphans(connection) - orphans_before:
            raise OrphanedRows(
                f"The migration was rolled back: it would leave {len(new_orphans)} rows without their parent."
            )
        connection.commit()


@contextmanager
def connect(url: str) -> Iterator[Connection]:
    """Yield a connection with foreign keys off, which SQLite can only switch outside a transaction."""
    engine = create_engine(url, poolclass=NullPool, connect_args={"isolation_level": None})
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - it is an SQLite URL
        _prepare(raw)
        yield connection


def _orphans(connection: Connection) -> set[tuple[Any, ...]]:
    """Return the rows without their parent: those that exist before an upgrade must not stop it."""
    return {(table, row) for table, row, *_ in connection.exec_driver_sql("PRAGMA foreign_key_check")}


def _prepare(raw: sqlite3.Connection) -> None:
    with closing(raw.execute("PRAGMA page_count")) as cursor:
        if cursor.fetchone()[0] == 0:
            raw.execute("PRAGMA auto_vacuum = INCREMENTAL")  # can only be set before the first table is created
    configure(raw)
    raw.execute("PRAGMA foreign_keys = OFF")
