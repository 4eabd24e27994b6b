"""What commands have in common: opening the database, errors in one line, JSON for scripts."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any, NamedTuple

import click
import msgspec
import structlog
from sqlalchemy import make_url
from sqlalchemy.exc import DBAPIError

from app import logs
from app import settings as app_settings
from app.caller import Caller, server_owner
from app.errors import AppError
from app.services.identity import teams
from app.services.projects import projects
from app.settings import Settings, SettingsError
from app.store import usage_lock
from app.store.database import Database, dialect_of, path_of
from app.store.schema import revisions

SqliteError = sqlite3.DatabaseError
"""What reading a file of SQLite's raises, where no engine of ours is in between."""

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
of_team = click.option("--team", required=True, metavar="TEAM", help="Id or slug of the team.")
dry_run = click.option("--dry-run", is_flag=True, help="Count, and change nothing.")


def load_settings() -> Settings:
    """Return the settings, or end the command with the line that says what is wrong with them."""
    try:
        return app_settings.load()
    except SettingsError as failure:
        raise click.ClickException(str(failure)) from failure


@contextmanager
def open_database(*, migrate: bool = True, exclusive: bool = False) -> Iterator[Database]:
    """Yield the database at head; report errors in one line. Never creates a database.

    `migrate=False` is for commands about the revision itself. `exclusive`: nobody else may use it meanwhile.
    """
    settings = load_settings()
    if not structlog.is_configured():
        logs.configure("ERROR", settings.log_format)  # to standard error: standard output is for the reply
    url = settings.owner_database_url
    with one_line_errors():
        require_database(settings)
        database = Database(url)
        try:
            with usage_lock.exclusive(url) if exclusive else usage_lock.shared(url):
                if migrate:
                    _migrate(url)
                yield database
        finally:
            database.close()


class MissingDatabase(NamedTuple):
    """There is no database file: what is wrong, and what to do about it."""

    detail: str
    remedy: str


def missing_database(settings: Settings) -> MissingDatabase | None:
    """Return what to say when there is no database file, None when there is one or the database is PostgreSQL.

    A mistyped path must not become a new, empty database, nor its folder.
    """
    url = settings.owner_database_url
    if dialect_of(url) != "sqlite" or path_of(url).exists():
        return None
    variable = "CMEM_DATABASE_URL" if settings.database_url or settings.database_admin_url else "CMEM_DATA_DIR"
    return MissingDatabase(
        f"There is no database at {path_of(url).absolute()}.",
        f"Check {variable}, or start `cmem-server serve` to create one.",
    )


def require_database(settings: Settings) -> None:
    """End the command when there is no database file."""
    if (missing := missing_database(settings)) is not None:
        raise click.ClickException(" ".join(missing))


def _migrate(url: str) -> None:
    """Migrate an embedded database to head; a PostgreSQL one must be there already. Alembic is imported on demand."""
    if not revisions.is_at_head(url):
        require_migrated(url)
        import_module("app.store.schema.migrations").make_ready(url)


def require_migrated(url: str) -> None:
    """End the command when a PostgreSQL database is empty; an embedded database is migrated when it is opened."""
    if dialect_of(url) == "postgresql" and revisions.current(url) is None:
        name = make_url(url).database
        raise click.ClickException(f"The database {name} has not been migrated. Run `cmem-server db upgrade` first.")


@contextmanager
def one_line_errors() -> Iterator[None]:
    """Turn expected errors into one line and a non-zero exit code."""
    try:
        yield
    except AppError as failure:
        raise click.ClickException(str(failure)) from failure
    except (DBAPIError, sqlite3.Error, OSError) as failure:
        reason = " ".join(str(getattr(failure, "orig", failure)).split())
        raise click.ClickException(f"{type(failure).__name__}: {reason}") from failure


def caller_in_team(database: Database, team: str) -> Caller:
    """Return the server's owner acting inside the team of this id or slug. Raises NotFound."""
    with database.read() as connection:
        return server_owner().within(teams.find(connection, server_owner(), team).id)


def caller_and_project(database: Database, team: str, project: str | None) -> tuple[Caller, str | None]:
    """Return the server's owner inside a team, and the id of the project of this id or slug. Raises NotFound."""
    caller = caller_in_team(database, team)
    if project is None:
        return caller, None
    with database.read() as connection:
        return caller, projects.find(connection, caller, project).id


def show(value: Any, *, as_json: bool, text: Callable[[Any], str]) -> None:
    """Print a value for scripts or for people."""
    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode() if as_json else text(value))


def table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> str:
    """Return rows as aligned text with a heading; an empty cell is a dash."""
    lines = [list(columns), *[[_cell(row.get(name)) for name in columns] for row in rows]]
    widths = [max(len(line[column]) for line in lines) for column in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def camel(value: Any) -> Any:
    """Return a value with its dictionary keys as they are written in JSON."""
    if isinstance(value, dict):
        return {_camel_name(name): camel(inner) for name, inner in value.items()}
    return [camel(inner) for inner in value] if isinstance(value, list) else value


def _camel_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.title() for word in others)


def _cell(value: Any) -> str:
    return "-" if value is None else ",".join(value) if isinstance(value, list) else str(value)
