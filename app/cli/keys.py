"""`keys`: who may come in."""

from typing import Any

import click

from app.caller import MEMORIES_READ
from app.cli import console
from app.services import credentials, projects
from app.services import keys as service


@click.group()
def keys() -> None:
    """Make API keys."""


@keys.command()
@console.of_team
@click.option("--project", metavar="PROJECT", help="Id or slug of the one project the key is for.")
@click.option("--user", metavar="USER", help="The member the key belongs to; the role cuts its scopes.")
@click.option("--scope", "scopes", multiple=True, default=(MEMORIES_READ,), show_default=True)
@click.option("--name", help="What the key is for.")
@click.option("--expires-in-days", type=click.IntRange(1, 365))
@console.as_json
def create(
    team: str,
    project: str | None,
    user: str | None,
    scopes: tuple[str, ...],
    name: str | None,
    expires_in_days: int | None,
    as_json: bool,
) -> None:
    """Make a key and print it: this is the only time it is shown."""
    minted = credentials.mint()
    secret_hash = credentials.hash_secret(minted.secret)
    with console.opened() as database:
        caller = console.within(database, team)
        with database.write() as connection:
            project_id = projects.find(connection, caller, project).id if project else None
            new = service.NewKey(
                name=name, scopes=scopes, project_id=project_id, user_id=user, expires_in_days=expires_in_days
            )
            key = service.create(connection, caller, new, minted, secret_hash)
    shown: dict[str, Any] = {
        "id": key.id,
        "apiKey": credentials.text_of(minted),
        "teamId": key.team_id,
        "projectId": key.project_id,
        "scopes": key.scopes,
    }
    console.show(shown, as_json=as_json, text=lambda value: f"{value['apiKey']}")
