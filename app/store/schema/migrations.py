"""Brings a database to the revision this code knows: one process at a time, one transaction, nothing half done.

The same revisions serve both dialects; their scripts lie side by side.
"""

from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, Final

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
from app.store.schema import objects, postgresql, sqlite

_SCRIPTS: Final = Path(__file__).parents[3] / "migrations"


class WrongRevision(AppError):
    """The database is of another revision than this code: newer, or not yet upgraded."""


def revisions() -> list[str]:
    """Return the revisions this code knows, the newest first."""
    return [script.revision for script in ScriptDirectory.from_config(_config(sqlite)).walk_revisions()]


@cache
def head() -> str:
    """Return the newest revision this code knows."""
    return revisions()[0]


def current(url: str) -> str | None:
    """Return the revision of a database, None when it is empty or not there. Nothing in it is changed."""
    found: str | None = _schema(url).current(url)
    return found


def upgrade(url: str, revision: str = "head") -> str | None:
    """Upgrade under the migration lock, checked again inside it; return the revision that then stands.

    Raises WrongRevision, and touches nothing, when the database is newer than this code.
    """
    with _schema(url).alone(url):
        standing = current(url)
        require_known(standing)
        if standing == head() and revision == "head":
            return standing
        return _run(url, lambda config: command.upgrade(config, revision))


def upgrade_within(connection: Connection) -> None:
    """Bring what a transaction of PostgreSQL sees to head, inside of it."""
    standing = connection.scalar(text("SELECT version_num FROM alembic_version"))
    require_known(standing)
    if standing != head():
        _step(connection, postgresql, lambda config: command.upgrade(config, "head"))
        objects.note(connection)


def downgrade(url: str, revision: str) -> str | None:
    """Go back to an older revision; return the revision that then stands."""
    with _schema(url).alone(url):
        require_known(current(url))
        return _run(url, lambda config: command.downgrade(config, revision))


def require_known(revision: str | None) -> None:
    """Raise WrongRevision when the code has never heard of a database's revision."""
    if revision is not None and revision not in revisions():
        raise WrongRevision(
            f"The database is at revision {revision}, this cmem-server knows revisions up to {head()}: "
            "it was made by a newer version. Nothing was touched; use that version or newer."
        )


def make_ready(url: str) -> None:
    """Bring an embedded database to head; a server's must be there already, since its owner migrates it."""
    if dialect_of(url) == "postgresql":
        require_head(url)
    else:
        upgrade(url)


def grant(url: str, server_url: str) -> str | None:
    """Let the role of `server_url` use what `url` migrated; return its name, None where there are no roles."""
    return postgresql.grant(url, server_url) if dialect_of(url) == "postgresql" else None


def grant_to(url: str, role: str) -> None:
    """Let a role of a PostgreSQL server use what `url` migrated."""
    postgresql.grant_to(url, role)


def require_head(url: str) -> None:
    """Raise WrongRevision unless the database is at the newest revision: for those who must not upgrade it."""
    standing = current(url)
    require_known(standing)
    if standing != head():
        raise WrongRevision(
            f"The database is at revision {standing}, needed is {head()}: run `cmem-server db upgrade` first."
        )


def drift(url: str) -> list[Any]:
    """Return what alembic would change to make the tables equal the models; empty when all is well."""
    with _schema(url).connected(url) as connection:
        context = MigrationContext.configure(connection, opts={"include_name": _is_table_of_ours})
        return list(compare_metadata(context, metadata))


def _is_table_of_ours(name: str | None, kind: str, _: Any) -> bool:
    """Leave out full text, which is no table of a model, and what a replication keeps beside ours."""
    return not (
        kind == "table"
        and name is not None
        and name.startswith(("memory_items_fts", "installed_objects", "copied_from", "_litestream_"))
    )


def _schema(url: str) -> ModuleType:
    return postgresql if dialect_of(url) == "postgresql" else sqlite


def _config(schema: ModuleType) -> Config:
    config = Config()
    config.set_main_option("script_location", str(_SCRIPTS))
    config.set_main_option("version_locations", str(_SCRIPTS / schema.SCRIPTS))
    config.set_main_option("path_separator", "os")
    return config


def _run(url: str, step: Callable[[Config], None]) -> str | None:
    """Run one Alembic command in one transaction."""
    schema = _schema(url)
    with schema.changing(url) as connection:
        _step(connection, schema, step)
    return current(url)


def _step(connection: Connection, schema: ModuleType, step: Callable[[Config], None]) -> None:
    config = _config(schema)
    config.attributes["connection"] = connection
    try:
        step(config)
    except CommandError as cause:
        raise WrongRevision(str(cause)) from cause
