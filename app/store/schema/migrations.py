"""Migrates a database: one process at a time, in one transaction, all or nothing.

Both dialects have the same revisions, each with its own scripts.
"""

from collections.abc import Callable
from functools import cache
from types import ModuleType
from typing import Any

from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from alembic.util import CommandError
from sqlalchemy import Connection, text

from app.errors import AppError
from app.store.database import dialect_of
from app.store.models import metadata
from app.store.schema import objects, postgresql, revisions, sqlite
from app.store.schema.revisions import SCRIPTS, schema_of


class WrongRevision(AppError):
    """The database is at a revision that this code cannot use: newer, or not yet upgraded."""


def known_revisions() -> list[str]:
    """Return the revisions this code knows, newest first."""
    return [script.revision for script in ScriptDirectory.from_config(_config(sqlite)).walk_revisions()]


@cache
def head() -> str:
    """Return the newest revision this code knows."""
    return known_revisions()[0]


def current(url: str) -> str | None:
    """Return the revision of a database, or None when it is empty or missing. It is not changed."""
    return revisions.current(url)


def upgrade(url: str, revision: str = "head") -> str | None:
    """Upgrade under the migration lock; return the new revision.

    Raises WrongRevision, without changing anything, when the database is newer than this code, and Unavailable while
    another process migrates it.
    """
    with schema_of(url).migration_lock(url):
        existing = current(url)
        require_known(existing)
        if existing == head() and revision == "head":
            return existing
        return _run(url, lambda config: command.upgrade(config, revision))


def upgrade_within(connection: Connection) -> None:
    """Upgrade to head inside a transaction of PostgreSQL; WrongRevision when the database is newer than this code."""
    revision = connection.scalar(text("SELECT version_num FROM alembic_version"))
    require_known(revision)
    if revision != head():
        _run_in(connection, postgresql, lambda config: command.upgrade(config, "head"))
        objects.record(connection)


def downgrade(url: str, revision: str) -> str | None:
    """Downgrade to an older revision; return the new revision. WrongRevision when the database's own is unknown."""
    with schema_of(url).migration_lock(url):
        require_known(current(url))
        return _run(url, lambda config: command.downgrade(config, revision))


def require_known(revision: str | None) -> None:
    """Raise WrongRevision when this code does not know a database's revision."""
    if revision is not None and revision not in known_revisions():
        raise WrongRevision(
            f"The database is at revision {revision}, but this cmem-server only knows revisions up to {head()}: "
            "a newer version created it. Nothing was changed; use that version or a newer one."
        )


def make_ready(url: str) -> None:
    """Upgrade an SQLite file; a PostgreSQL database must be at head already, because its owner migrates it."""
    if dialect_of(url) == "postgresql":
        require_head(url)
    else:
        upgrade(url)


def grant(url: str, server_url: str) -> str | None:
    """Grant the role of `server_url` access to the database at `url`; return its name, or None where none is needed."""
    return postgresql.grant(url, server_url) if dialect_of(url) == "postgresql" else None


def grant_to(url: str, role: str) -> None:
    """Grant a role access to the PostgreSQL database at `url`."""
    postgresql.grant_to(url, role)


def require_head(url: str) -> None:
    """Raise WrongRevision unless the database is at the newest revision: for roles that must not upgrade it."""
    revision = current(url)
    require_known(revision)
    if revision != head():
        raise WrongRevision(
            f"The database is at revision {revision}, expected {head()}: run `cmem-server db upgrade` first."
        )


def drift(url: str) -> list[Any]:
    """Return what Alembic would change to make the tables match the models; empty when they do."""
    with schema_of(url).connect(url) as connection:
        context = MigrationContext.configure(connection, opts={"include_name": _is_compared})
        return list(compare_metadata(context, metadata))


def _is_compared(name: str | None, kind: str, _: Any) -> bool:
    """Leave out full text, which is not a model, and the tables of replication tools."""
    return not (
        kind == "table"
        and name is not None
        and name.startswith(("memory_items_fts", "installed_objects", "copied_from", "_litestream_"))
    )


def _config(schema: ModuleType) -> Config:
    config = Config()
    config.set_main_option("script_location", str(SCRIPTS))
    config.set_main_option("version_locations", str(SCRIPTS / schema.SCRIPTS))
    config.set_main_option("path_separator", "os")
    return config


def _run(url: str, step: Callable[[Config], None]) -> str | None:
    """Run one Alembic command in one transaction."""
    schema = schema_of(url)
    with schema.migration_transaction(url) as connection:
        _run_in(connection, schema, step)
    return current(url)


def _run_in(connection: Connection, schema: ModuleType, step: Callable[[Config], None]) -> None:
    config = _config(schema)
    config.attributes["connection"] = connection
    try:
        step(config)
    except CommandError as cause:
        raise WrongRevision(str(cause)) from cause
