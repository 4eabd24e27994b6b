"""`teams`: the tenants of this server."""

from typing import Any

import click

from app.caller import server_owner
from app.cli import console
from app.services.identity import teams as service
from app.store.records import Team


@click.group()
def teams() -> None:
    """Create and list teams."""


@teams.command()
@click.argument("name")
@click.option("--slug", help="Short name; derived from NAME when omitted.")
@console.as_json
def create(name: str, slug: str | None, as_json: bool) -> None:
    """Create the team NAME."""
    with console.open_database() as database, database.write() as connection:
        team = service.create(connection, server_owner(), name=name, slug=slug)
    console.show(_as_dict(team), as_json=as_json, text=lambda value: f"{value['slug']}  {value['id']}")


@teams.command("list")
@console.as_json
def list_(as_json: bool) -> None:
    """List all teams."""
    with console.open_database() as database, database.read() as connection:
        rows = [_as_dict(team) for team in service.list_all(connection, server_owner())]
    console.show(rows, as_json=as_json, text=lambda rows: console.table(rows, ("slug", "name", "id")))


def _as_dict(team: Team) -> dict[str, Any]:
    return {"id": team.id, "name": team.name, "slug": team.slug}
