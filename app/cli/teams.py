"""`teams`: the tenants of this server."""

from typing import Any

import click

from app.caller import server_owner
from app.cli import console
from app.services.identity import teams as service
from app.store.records import Team


@click.group()
def teams() -> None:
    """Make and list teams."""


@teams.command()
@click.argument("name")
@click.option("--slug", help="Short name; made from NAME when left out.")
@console.as_json
def create(name: str, slug: str | None, as_json: bool) -> None:
    """Make the team NAME."""
    with console.opened() as database, database.write() as connection:
        team = service.create(connection, server_owner(), name=name, slug=slug)
    console.show(_shown(team), as_json=as_json, text=lambda shown: f"{shown['slug']}  {shown['id']}")


@teams.command("list")
@console.as_json
def list_(as_json: bool) -> None:
    """List all teams."""
    with console.opened() as database, database.read() as connection:
        found = [_shown(team) for team in service.everybody(connection, server_owner())]
    console.show(found, as_json=as_json, text=lambda rows: console.table(rows, ("slug", "name", "id")))


def _shown(team: Team) -> dict[str, Any]:
    return {"id": team.id, "name": team.name, "slug": team.slug}
