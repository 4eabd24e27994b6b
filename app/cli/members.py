"""`members`: who belongs to a team, in which role."""

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
    """Take USER into the team."""
    with console.opened() as database:
        caller = console.within(database, team)
        with database.write() as connection:
            member = service.add(connection, caller, user_id=user, role=role)
    console.show(_shown(member), as_json=as_json, text=lambda shown: f"{shown['userId']}  {shown['role']}")


@members.command("list")
@console.of_team
@console.as_json
def list_(team: str, as_json: bool) -> None:
    """List the members of a team."""
    with console.opened() as database:
        caller = console.within(database, team)
        with database.read() as connection:
            found = [_shown(member) for member in service.everybody(connection, caller)]
    console.show(found, as_json=as_json, text=lambda rows: console.table(rows, _COLUMNS))


@members.command()
@click.argument("user")
@console.of_team
@console.as_json
def remove(user: str, team: str, as_json: bool) -> None:
    """Take USER out of the team, with his keys. The last owner cannot leave."""
    with console.opened() as database:
        caller = console.within(database, team)
        with database.write() as connection:
            service.remove(connection, caller, user)
    shown = {"deleted": True, "userId": user}
    console.show(shown, as_json=as_json, text=lambda value: f"{value['userId']} has left")


def _shown(member: Member) -> dict[str, Any]:
    return {"teamId": member.team_id, "userId": member.user_id, "role": member.role}
