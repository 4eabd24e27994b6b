"""`projects`: what a team works on."""

from typing import Any

import click

from app.cli import console
from app.services.projects import projects as service
from app.store.records import Project


@click.group()
def projects() -> None:
    """Make and list projects."""


@projects.command()
@click.argument("name")
@console.of_team
@click.option("--slug", help="Short name; made from NAME when left out.")
@console.as_json
def create(name: str, team: str, slug: str | None, as_json: bool) -> None:
    """Make the project NAME."""
    with console.opened() as database:
        caller = console.within(database, team)
        with database.write() as connection:
            project = service.create(connection, caller, name=name, slug=slug)
    console.show(_shown(project), as_json=as_json, text=lambda shown: f"{shown['slug']}  {shown['id']}")


@projects.command("list")
@console.of_team
@console.as_json
def list_(team: str, as_json: bool) -> None:
    """List the projects of a team."""
    with console.opened() as database:
        caller = console.within(database, team)
        with database.read() as connection:
            found = [_shown(project) for project in service.everything(connection, caller)]
    console.show(found, as_json=as_json, text=lambda rows: console.table(rows, ("slug", "name", "id")))


def _shown(project: Project) -> dict[str, Any]:
    return {"id": project.id, "teamId": project.team_id, "name": project.name, "slug": project.slug}
