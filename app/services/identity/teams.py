"""Teams: the tenants of the server. No data crosses from one team to another."""

from dataclasses import replace
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, Select, Table, bindparam, delete, insert, or_, select, update

from app.caller import EVERYTHING, MEMORIES_READ, RANKS, SERVER_ADMIN, TEAM_ADMIN, Caller
from app.clock import new_id, now_ms
from app.errors import Conflict, Forbidden, NotFound
from app.services.audit import entries
from app.services.shared import paging, slugs
from app.store import rls_bypass
from app.store.models import agent_events, memory_items, operations, server_sessions, teams, usage_counters
from app.store.prepared import PreparedStatement
from app.store.records import Team, columns
from app.store.scope import owned, unscoped

_COLUMNS: Final = columns(teams, Team)

_BY_SLUG: Final = PreparedStatement(unscoped(teams, teams.c.id).where(teams.c.slug == bindparam("slug")), str)

DEFAULT: Final = "default"
"""The slug of the team that the first run creates."""

DELETE_BATCH_ROWS: Final = 1_000
_LARGE_TABLES: Final[tuple[Table, ...]] = (memory_items, agent_events, server_sessions)
_TABLES_WITHOUT_FOREIGN_KEY: Final[tuple[Table, ...]] = (operations, usage_counters)
"""Their rows name a team, but are not deleted by the cascade."""


def create(
    connection: Connection,
    caller: Caller,
    *,
    name: str,
    slug: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> Team:
    """Create a team; needs server:admin. Raises Conflict when the given slug is taken."""
    caller.require(SERVER_ADMIN)
    if slug is not None and _slug_is_taken(connection, slugs.require_valid(slug)):
        raise Conflict(f"The slug {slug!r} is taken.")
    now = now_ms()
    slug = slug or slugs.make_unique(name, fallback="team", is_taken=partial(_slug_is_taken, connection))
    team = Team(new_id(), name, slug, metadata or {}, now, now)
    connection.execute(insert(teams).values({key: getattr(team, key) for key in Team.__struct_fields__}))
    entries.record(connection, caller.within(team.id), "team.create", target=("team", team.id))
    return team


def local_dev_caller(connection: Connection, *, request_id: str) -> Caller | None:
    """Return the caller of local-dev mode: the owner of the team `default`; None when there is no such team."""
    team_id = _BY_SLUG.first(connection, {"slug": DEFAULT})
    if team_id is None:
        return None
    return Caller(team_id=team_id, scopes=frozenset({EVERYTHING}), request_id=request_id)


def find(connection: Connection, caller: Caller, id_or_slug: str) -> Team:
    """Return a team by id or slug; needs server:admin. NotFound if there is none."""
    caller.require(SERVER_ADMIN)
    matches = or_(teams.c.id == id_or_slug, teams.c.slug == id_or_slug)
    row = connection.execute(unscoped(teams, *_COLUMNS).where(matches)).first()
    if row is None:
        raise NotFound("team")
    return Team(*row)


def list_all(connection: Connection, caller: Caller) -> list[Team]:
    """Return all teams, oldest first; needs server:admin."""
    caller.require(SERVER_ADMIN)
    rows = connection.execute(unscoped(teams, *_COLUMNS).order_by(teams.c.created_at_epoch, teams.c.id))
    return [Team(*row) for row in rows]


def list_page(connection: Connection, caller: Caller, *, limit: int, cursor: str | None) -> paging.Page[Team]:
    """Return the teams visible to the caller, newest first: all of them with server:admin, else the caller's own."""
    sees_all = caller.may(SERVER_ADMIN)
    if not sees_all:
        caller.require(MEMORIES_READ)
    return paging.page(
        connection,
        unscoped(teams, *_COLUMNS) if sees_all else owned(teams, caller, *_COLUMNS),
        Team,
        (teams.c.created_at_epoch, teams.c.id),
        limit=limit,
        cursor=cursor,
        bound_to=paging.binding(caller, ["teams", sees_all]),
    )


def get(connection: Connection, caller: Caller, team_id: str) -> Team:
    """Return a team that is visible to the caller; NotFound otherwise."""
    if caller.may(SERVER_ADMIN):
        return _fetch(connection, unscoped(teams, *_COLUMNS), team_id)
    caller.require(MEMORIES_READ)
    return _fetch(connection, owned(teams, caller, *_COLUMNS), team_id)


def within(connection: Connection, caller: Caller, team_id: str) -> Caller:
    """Return the caller, acting inside the given team; NotFound when it is another than the caller's.

    A caller without a team can act in any team: the individual rules decide what it may do there.
    """
    if caller.team_id is None:
        return caller.within(_fetch(connection, unscoped(teams, *_COLUMNS), team_id).id)
    _fetch(connection, owned(teams, caller, *_COLUMNS), team_id)
    return caller


def change(connection: Connection, caller: Caller, team_id: str, changes: dict[str, Any]) -> Team:
    """Update name, slug or metadata; fields absent from `changes` are kept. Raises Conflict when the slug is taken."""
    caller = _as_admin(connection, caller, team_id)
    existing = _fetch(connection, owned(teams, caller, *_COLUMNS), team_id)
    slug = changes.get("slug")
    if slug is not None and slug != existing.slug and _slug_is_taken(connection, slugs.require_valid(slug)):
        raise Conflict(f"The slug {slug!r} is taken.")
    if changes:
        connection.execute(update(teams).where(teams.c.id == team_id).values(**changes, updated_at_epoch=now_ms()))
        entries.record(connection, caller, "team.update", target=("team", team_id))
    return _fetch(connection, owned(teams, caller, *_COLUMNS), team_id)


def delete_batch(connection: Connection, caller: Caller, team_id: str) -> int:
    """Delete up to DELETE_BATCH_ROWS rows of a team; return how many. After zero, remove() has little left to do.

    A single cascade over a whole team would hold the write lock for seconds.
    """
    caller = _as_owner(connection, caller, team_id)
    for table in _LARGE_TABLES:
        (key,) = table.primary_key
        batch = owned(table, caller, key).limit(DELETE_BATCH_ROWS).scalar_subquery()
        if deleted := connection.execute(delete(table).where(key.in_(batch))).rowcount:
            return deleted
    return 0


def remove(connection: Connection, caller: Caller, team_id: str) -> None:
    """Delete a team and all its data; needs the role owner or server:admin."""
    owner = _as_owner(connection, caller, team_id)
    connection.execute(delete(teams).where(teams.c.id == owner.team_id))
    for table in _TABLES_WITHOUT_FOREIGN_KEY:  # last: the deletion above waits for writers that lock the team's row
        connection.execute(delete(table).where(table.c.team_id == owner.team_id))
    entries.record(connection, caller, "team.delete", target=("team", team_id))


def _as_admin(connection: Connection, caller: Caller, team_id: str) -> Caller:
    """Return the caller, acting inside the team; needs team:admin there, or server:admin."""
    if caller.may(SERVER_ADMIN):
        return replace(within(connection, caller, team_id), scopes=frozenset({EVERYTHING}))
    caller.require(TEAM_ADMIN)
    caller = within(connection, caller, team_id)
    caller.require_whole_team()
    return caller


def _as_owner(connection: Connection, caller: Caller, team_id: str) -> Caller:
    admin = _as_admin(connection, caller, team_id)
    if admin.rank < RANKS["owner"]:
        raise Forbidden("Only an owner can delete a team.")
    return admin


def _fetch(connection: Connection, statement: Select[Any], team_id: str) -> Team:
    row = connection.execute(statement.where(teams.c.id == team_id)).first()
    if row is None:
        raise NotFound("team")
    return Team(*row)


def _slug_is_taken(connection: Connection, slug: str) -> bool:
    with rls_bypass.bypass_rls(connection):
        return connection.scalar(select(unscoped(teams).where(teams.c.slug == slug).exists())) or False
