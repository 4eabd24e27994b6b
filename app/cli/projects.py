"""`projects`: what a team works on."""

from typing import Any

import click

from app.cli import console
from app.services.projects import projects as service
from app.store.records import Project


@click.group()
def projects() -> None:
    """Create and list projects."""


@projects.command()
@click.argument("name")
@console.of_team
@click.option("--slug", help="Short name; derived from NAME when omitted.")
@console.as_json
def create(name: str, team: str, slug: str | None, as_json: bool) -> None:
    """Create the project NAME."""
    with console.open_database() as database:
        caller = console.caller_in_team(database, team)
        with database.write() as connection:
            project = service.create(connection, caller, name=name, slug=slug)
    console.show(_as_dict(project), as_json=as_json, text=lambda value: f"{value['slug']}  {value['id']}")


@projects.command("list")
@console.of_team
@console.as_json
def list_(team: str, as_json: bool) -> None:
    """List the projects of a team."""
    with console.open_database() as database:
        caller = console.caller_in_team(database, team)
        with database.read() as connection:
            rows = [_as_dict(project) for project in service.list_all(connection, caller)]
    console.show(rows, as_json=as_json, text=lambda rows: console.table(rows, ("slug", "name", "id")))


def _as_dict(project: Project) -> dict[str, Any]:
    return {"id": project.id, "teamId": project.team_id, "name": project.name, "slug": project.slug}
