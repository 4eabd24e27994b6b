"""What every command has in common: the database it opens, failures in one line, JSON for scripts."""

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import click
import msgspec
import structlog
from sqlalchemy.exc import DBAPIError

from app import logs
from app import settings as app_settings
from app.caller import Caller, server_owner
from app.errors import AppError
from app.services.identity import teams
from app.settings import Settings, SettingsError
from app.store import usage_lock
from app.store.database import Database
from app.store.schema import migrations

as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON, for scripts.")
of_team = click.option("--team", required=True, metavar="TEAM", help="Id or slug of the team.")


def loaded() -> Settings:
    """Return the settings, or end the command with the line that says what is wrong with them."""
    try:
        return app_settings.load()
    except SettingsError as failure:
        raise click.ClickException(str(failure)) from failure


@contextmanager
def opened(*, upgraded: bool = True, alone: bool = False) -> Iterator[Database]:
    """Yield the database, brought to head first unless the command is about just that; name failures in one line.

    `alone`: nobody else may use it meanwhile.
    """
    settings = loaded()
    if not structlog.is_configured():
        logs.configure("ERROR", settings.log_format)  # to standard error: standard output is for the reply
    url = settings.owner_database_url
    with failures_in_one_line():
        database = Database(url)
        try:
            with usage_lock.alone(url) if alone else usage_lock.using(url):
                if upgraded:
                    migrations.make_ready(url)
                yield database
        finally:
            database.close()


@contextmanager
def failures_in_one_line() -> Iterator[None]:
    """Turn what can go wrong into one line and a non-zero exit."""
    try:
        yield
    except AppError as failure:
        raise click.ClickException(str(failure)) from failure
    except (DBAPIError, sqlite3.Error, OSError) as failure:
        reason = " ".join(str(getattr(failure, "orig", failure)).split())
        raise click.ClickException(f"{type(failure).__name__}: {reason}") from failure


def within(database: Database, team: str) -> Caller:
    """Return the server's owner acting inside the team of this id or slug."""
    with database.read() as connection:
        return server_owner().within(teams.find(connection, server_owner(), team).id)


def show(value: Any, *, as_json: bool, text: Callable[[Any], str]) -> None:
    """Print a value for scripts or for people."""
    click.echo(msgspec.json.format(msgspec.json.encode(value)).decode() if as_json else text(value))


def table(rows: list[dict[str, Any]], columns: tuple[str, ...]) -> str:
    """Return rows as aligned text with a heading; dashes stand for what is empty."""
    lines = [list(columns), *[[_cell(row.get(name)) for name in columns] for row in rows]]
    widths = [max(len(line[place]) for line in lines) for place in range(len(columns))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _cell(value: Any) -> str:
    return "-" if value is None else ",".join(value) if isinstance(value, list) else str(value)
