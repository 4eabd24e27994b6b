"""`members`: who belongs to a team, and in which role."""

from typing import Any

import click

from app.caller import RANKS, Role
from app.cli import console
from app.services.identity import members as service
from app.store.records import Member

_COLUMNS = ("userId", "role")


@click.group()
def members() -> None:
    """Add, list and remove the members of a team."""


@members.command()
@click.argument("user")
@console.of_team
@click.option("--role", type=click.Choice(list(RANKS)), default="member", show_default=True)
@console.as_json
def add(user: str, team: str, role: Role, as_json: bool) -> None:
    """Add USER to the team."""
    with console.open_database() as database:
        caller = console.caller_in_team(database, team)
        with database.write() as connection:
            member = service.add(connection, caller, user_id=user, role=role)
    console.show(_as_dict(member), as_json=as_json, text=lambda value: f"{value['userId']}  {value['role']}")


@members.command("list")
@console.of_team
@console.as_json
def list_(team: str, as_json: bool) -> None:
    """List the members of a team."""
    with console.open_database() as database:
        caller = console.caller_in_team(database, team)
        with database.read() as connection:
            rows = [_as_dict(member) for member in service.list_all(connection, caller)]
    console.show(rows, as_json=as_json, text=lambda rows: console.table(rows, _COLUMNS))


@members.command()
@click.argument("user")
@console.of_team
@console.as_json
def remove(user: str, team: str, as_json: bool) -> None:
    """Remove USER from the team and delete their keys. The last owner cannot be removed."""
    with console.open_database() as database:
        caller = console.caller_in_team(database, team)
        with database.write() as connection:
            service.remove(connection, caller, user)
    reply = {"deleted": True, "userId": user}
    console.show(reply, as_json=as_json, text=lambda value: f"Removed {value['userId']}")


def _as_dict(member: Member) -> dict[str, Any]:
    return {"teamId": member.team_id, "userId": member.user_id, "role": member.role}
