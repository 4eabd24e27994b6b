"""`keys`: the API keys of teams, and of the server itself."""

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
of_server = click.option("--server", "of_server", is_flag=True, help="A key of the server itself, of no team.")


@click.group()
def keys() -> None:
    """Create, list, rotate and revoke API keys."""


@keys.command()
@maybe_team
@of_server
@click.option("--project", metavar="PROJECT", help="Id or slug of the only project that the key may use.")
@click.option("--user", metavar="USER", help="Member that the key belongs to; their role limits its scopes.")
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
    """Create a key and print it. It is shown only this once."""
    if not of_server and SERVER_ADMIN in scopes:
        raise click.UsageError(f"A key with the scope {SERVER_ADMIN} belongs to no team: use --server.")
    minted = credentials.mint()
    secret_hash = credentials.hash_secret(minted.secret)
    with console.open_database() as database:
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
    """List the keys of a team. Those that are unused or expire soon are marked; secrets are never shown."""
    with console.open_database() as database:
        caller = _caller(database, team, of_server=of_server)
        with database.read() as connection:
            rows = [_as_dict(key) for key in service.list_all(connection, caller)]
    console.show(rows, as_json=as_json, text=lambda rows: console.table(rows, _COLUMNS))


@keys.command()
@click.argument("key")
@maybe_team
@click.option(
    "--overlap-seconds",
    type=click.IntRange(0, service.MAX_OVERLAP_SECONDS),
    default=0,
    show_default=True,
    help="How long the old key still works.",
)
@console.as_json
def rotate(key: str, team: str | None, overlap_seconds: int, as_json: bool) -> None:
    """Replace KEY, an id or a prefix, with a new key and print it. It is shown only this once."""
    minted = credentials.mint()
    secret_hash = credentials.hash_secret(minted.secret)
    with console.open_database() as database, database.write() as connection:
        existing, caller = _find(connection, key, team)
        replacement = service.rotate(
            connection, caller, existing.id, minted, secret_hash, overlap_seconds=overlap_seconds
        )
    _show_secret(replacement, minted, as_json=as_json)


@keys.command()
@click.argument("key")
@maybe_team
@console.as_json
def revoke(key: str, team: str | None, as_json: bool) -> None:
    """Revoke KEY, an id or a prefix, from its next request on."""
    with console.open_database() as database, database.write() as connection:
        existing, caller = _find(connection, key, team)
        revoked = service.revoke(connection, caller, existing.id)
    console.show(_as_dict(revoked), as_json=as_json, text=lambda value: f"Revoked {value['prefix']}")


def _caller(database: Database, team: str | None, *, of_server: bool) -> Caller:
    if of_server == (team is not None):
        raise click.UsageError("Give either --team TEAM or --server.")
    return server_owner() if team is None else console.caller_in_team(database, team)


def _find(connection: Connection, key: str, team: str | None) -> tuple[ApiKey, Caller]:
    """Return a key and the server's owner acting in its team. Raises NotFound, also when another team is named."""
    existing = service.find_in_any_team(connection, server_owner(), key)
    if team is not None and teams.find(connection, server_owner(), team).id != existing.team_id:
        raise NotFound("key")
    return existing, server_owner().within(existing.team_id) if existing.team_id else server_owner()


def _as_dict(key: ApiKey) -> dict[str, Any]:
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
    reply: dict[str, Any] = {
        "id": key.id,
        "apiKey": credentials.format_key(minted),
        "teamId": key.team_id,
        "projectId": key.project_id,
        "scopes": key.scopes,
    }
    console.show(reply, as_json=as_json, text=lambda value: str(value["apiKey"]))
