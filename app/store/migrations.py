"""Brings a database to the revision this code knows: one process at a time, one transaction, nothing half done."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, create_engine, make_url
from sqlalchemy.pool import NullPool

from app.errors import AppError, Unavailable
from app.store.database import configure
from app.store.locks import FileLock
from app.store.models import metadata

_SCRIPTS: Final = Path(__file__).parents[2] / "migrations"
_LOCK_TIMEOUT_SECONDS: Final = 120.0


class WrongRevision(AppError):
    """The database is of another revision than this code: newer, or not yet upgraded."""


def revisions() -> list[str]:
    """Return the revisions this code knows, the newest first."""
    return [script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()]


@cache
def head() -> str:
    """Return the newest revision this code knows."""
    return revisions()[0]


def current(url: str) -> str | None:
    """Return the revision of a database, None when it is empty or not there. Not a byte of the file is changed."""
    path = _path(url)
    if not path.exists():
        return None
    with closing(sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)) as connection:
        if not connection.execute("SELECT 1 FROM sqlite_master WHERE name = 'alembic_version'").fetchone():
            return None
        found = connection.execute("SELECT version_num FROM alembic_version").fetchone()
        return found[0] if found else None


def upgrade(url: str, revision: str = "head") -> str | None:
    """Upgrade under the migration lock, checked again inside it; return the revision that then stands.

    Raises WrongRevision, and touches nothing, when the database is newer than this code.
    """
    with _alone(url):
        standing = current(url)
        require_known(standing)
        if standing == head() and revision == "head":
            return standing
        return _run(url, lambda config: command.upgrade(config, revision))


def downgrade(url: str, revision: str) -> str | None:
    """Go back to an older revision; return the revision that then stands."""
    with _alone(url):
        require_known(current(url))
        return _run(url, lambda config: command.downgrade(config, revision))


def require_known(revision: str | None) -> None:
    """Raise WrongRevision when the code has never heard of a database's revision."""
    if revision is not None and revision not in revisions():
        raise WrongRevision(
            f"The database is at revision {revision}, this cmem-server knows revisions up to {head()}: "
            "it was made by a newer version. Nothing was touched; use that version or newer."
        )


def drift(url: str) -> list[Any]:
    """Return what alembic would change to make the tables equal the models; empty when all is well."""
    with _connected(url) as connection:
        context = MigrationContext.configure(connection, opts={"include_name": _is_table_of_ours})
        return list(compare_metadata(context, metadata))


def _is_table_of_ours(name: str | None, kind: str, _: Any) -> bool:
    """Leave out full text, which is no table of a model, and what a replication keeps beside ours."""
    return not (kind == "table" and name is not None and name.startswith(("memory_items_fts", "_litestream_")))


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.set_main_option("path_separator", "os")
    return config


def _run(url: str, step: Callable[[Config], None]) -> str | None:
    """Run one Alembic command in one immediate transaction, with foreign keys compared before it commits."""
    config = _config()
    with _connected(url) as connection:
        config.attributes["connection"] = connection
        connection.exec_driver_sql("BEGIN IMMEDIATE")
        lost_before = _orphans(connection)
        try:
            step(config)
        except CommandError as cause:
            raise WrongRevision(str(cause)) from cause
        if lost := _orphans(connection) - lost_before:
            raise WrongRevision(f"The migration was undone: it would leave {len(lost)} rows without their parent.")
        connection.commit()
        return MigrationContext.configure(connection).get_current_revision()


def _orphans(connection: Connection) -> set[tuple[Any, ...]]:
    """Return the rows without their parent; those that a writer with foreign keys off left must not stop an upgrade."""
    return {(table, row) for table, row, *_ in connection.exec_driver_sql("PRAGMA foreign_key_check")}


@contextmanager
def _connected(url: str) -> Iterator[Connection]:
    """Yield a connection with foreign keys off, which SQLite only allows outside a transaction."""
    engine = create_engine(url, poolclass=NullPool, connect_args={"isolation_level": None})
    with engine.connect() as connection:
        raw = connection.connection.driver_connection
        assert isinstance(raw, sqlite3.Connection)  # noqa: S101 - the URL said so
        _prepare(raw)
        yield connection


def _prepare(raw: sqlite3.Connection) -> None:
    with closing(raw.execute("PRAGMA page_count")) as cursor:
        if cursor.fetchone()[0] == 0:
            raw.execute("PRAGMA auto_vacuum = INCREMENTAL")  # can only be chosen before the first table
    configure(raw)
    raw.execute("PRAGMA foreign_keys = OFF")


def _path(url: str) -> Path:
    return Path(make_url(url).database or "")


@contextmanager
def _alone(url: str) -> Iterator[None]:
    path = _path(url)
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = FileLock(path.with_name(path.name + "-migration.lock"))
    try:
        if not lock.acquire(timeout_seconds=_LOCK_TIMEOUT_SECONDS):
            raise Unavailable("Another process is migrating the database.")
        yield
    finally:
        lock.close()
