"""`keys`: who may come in."""

from typing import Any

import click
from sqlalchemy import Connection

from app.caller import MEMORIES_READ, SERVER_ADMIN, Caller, server_owner
from app.cli import console
from app.errors import NotFound
from app.services.identity import credentials, teams
from app.services.identity import keys as service
from app.services.projects import projects
from app.store.database import Database
from app.store.records import ApiKey

_COLUMNS = ("prefix", "name", "scopes", "projectId", "userId", "state", "id")

maybe_team = click.option("--team", metavar="TEAM", help="Id or slug of the team.")
of_server = click.option("--server", "of_server", is_flag=True, help="Of no team: for the server itself.")


@click.group()
def keys() -> None:
    """Make, list, rotate and revoke API keys."""


@keys.command()
@maybe_team
@of_server
@click.option("--project", metavar="PROJECT", help="Id or slug of the one project the key is for.")
@click.option("--user", metavar="USER", help="The member the key belongs to; the role cuts its scopes.")
@click.option("--scope", "scopes", multiple=True, default=(MEMORIES_READ,), show_default=True)
@click.option("--name", help="What the key is for.")
@click.option("--expires-in-days", type=click.IntRange(1, 365))
@console.as_json
def create(
    team: str | None,
    of_server: bool,
    project: str | None,
    user: str | None,
    scopes: tuple[str, ...],
    name: str | None,
    expires_in_days: int | None,
    as_json: bool,
) -> None:
    """Make a key and print it: this is the only time it is shown."""
    if not of_server and SERVER_ADMIN in scopes:
        raise click.UsageError(f"A key with {SERVER_ADMIN} is of no team: use --server.")
    minted = credentials.mint()
    secret_hash = credentials.hash_secret(minted.secret)
    with console.opened() as database:
        caller = _caller(database, team, of_server=of_server)
        with database.write() as connection:
            project_id = projects.find(connection, caller, project).id if project else None
            new = service.NewKey(
                name=name, scopes=scopes, project_id=project_id, user_id=user, expires_in_days=expires_in_days
            )
            key = service.create(connection, caller, new, minted, secret_hash)
    _show_secret(key, minted, as_json=as_json)


@keys.command("list")
@maybe_team
@of_server
@console.as_json
def list_(team: str | None, of_server: bool, as_json: bool) -> None:
    """List the keys of a team, never their secrets. Look at those that are unused or expire soon."""
    with console.opened() as database:
        caller = _caller(database, team, of_server=of_server)
        with database.read() as connection:
            found = [_shown(key) for key in service.everything(connection, caller)]
    console.show(found, as_json=as_json, text=lambda rows: console.table(rows, _COLUMNS))


@keys.command()
@click.argument("key")
@maybe_team
@click.option(
    "--overlap-seconds",
    type=click.IntRange(0, service.MAX_OVERLAP_SECONDS),
    default=0,
    show_default=True,
    help="How long the old key goes on working.",
)
@console.as_json
def rotate(key: str, team: str | None, overlap_seconds: int, as_json: bool) -> None:
    """Put a new key in the place of KEY, an id or a prefix, and print it: this is the only time it is shown."""
    minted = credentials.mint()
    secret_hash = credentials.hash_secret(minted.secret)
    with console.opened() as database, database.write() as connection:
        standing, caller = _located(connection, key, team)
        made = service.rotate(connection, caller, standing.id, minted, secret_hash, overlap_seconds=overlap_seconds)
    _show_secret(made, minted, as_json=as_json)


@keys.command()
@click.argument("key")
@maybe_team
@console.as_json
def revoke(key: str, team: str | None, as_json: bool) -> None:
    """Revoke KEY, an id or a prefix, from its next request on."""
    with console.opened() as database, database.write() as connection:
        standing, caller = _located(connection, key, team)
        revoked = service.revoke(connection, caller, standing.id)
    console.show(_shown(revoked), as_json=as_json, text=lambda shown: f"{shown['prefix']} is revoked")


def _caller(database: Database, team: str | None, *, of_server: bool) -> Caller:
    if of_server == (team is not None):
        raise click.UsageError("Say either --team TEAM or --server.")
    return server_owner() if team is None else console.within(database, team)


def _located(connection: Connection, key: str, team: str | None) -> tuple[ApiKey, Caller]:
    """Return a key, of this team when one is named, and the server's owner acting where it belongs."""
    standing = service.locate(connection, server_owner(), key)
    if team is not None and teams.find(connection, server_owner(), team).id != standing.team_id:
        raise NotFound("key")
    return standing, server_owner().within(standing.team_id) if standing.team_id else server_owner()


def _shown(key: ApiKey) -> dict[str, Any]:
    return {
        "id": key.id,
        "prefix": credentials.prefix_of(key.public_id),
        "name": key.name,
        "label": key.label,
        "teamId": key.team_id,
        "projectId": key.project_id,
        "userId": key.user_id,
        "scopes": key.scopes,
        "createdAtEpoch": key.created_at_epoch,
        "expiresAtEpoch": key.expires_at_epoch,
        "revokedAtEpoch": key.revoked_at_epoch,
        "lastUsedAtEpoch": key.last_used_at_epoch,
        "state": service.state(key),
    }


def _show_secret(key: ApiKey, minted: credentials.PresentedKey, *, as_json: bool) -> None:
    shown: dict[str, Any] = {
        "id": key.id,
        "apiKey": credentials.text_of(minted),
        "teamId": key.team_id,
        "projectId": key.project_id,
        "scopes": key.scopes,
    }
    console.show(shown, as_json=as_json, text=lambda value: f"{value['apiKey']}")
