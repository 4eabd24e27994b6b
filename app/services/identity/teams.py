"""Teams: the verbs and the rules. A team is the wall that nothing crosses."""

from dataclasses import replace
from typing import Any, Final

from sqlalchemy import Connection, Select, Table, bindparam, delete, insert, or_, select, update

from app.caller import EVERYTHING, MEMORIES_READ, RANKS, SERVER_ADMIN, TEAM_ADMIN, Caller
from app.clock import new_id, now_ms
from app.errors import Conflict, Forbidden, NotFound
from app.services.audit import entries
from app.services.shared import paging, slugs
from app.store import rls_bypass
from app.store.models import agent_events, memory_items, operations, server_sessions, teams, usage_counters
from app.store.prepared import Prepared
from app.store.records import Team, columns
from app.store.scope import every, owned

_COLUMNS: Final = columns(teams, Team)

_BY_SLUG: Final = Prepared(every(teams, teams.c.id).where(teams.c.slug == bindparam("slug")), str)

DEFAULT: Final = "default"
"""The slug of the team that the first run makes."""

REMOVAL_BATCH: Final = 1_000
_NUMEROUS: Final[tuple[Table, ...]] = (memory_items, agent_events, server_sessions)
_UNTIED: Final[tuple[Table, ...]] = (operations, usage_counters)
"""Tables without a foreign key to the team."""


def create(
    connection: Connection,
    caller: Caller,
    *,
    name: str,
    slug: str | None = None,
    metadata: dict[str, Any] | None = None,
) -> Team:
    """Make a team; needs server:admin. Conflict when a slug that was given is taken."""
    caller.require(SERVER_ADMIN)
    if slug is not None and _slug_is_taken(connection, slugs.validated(slug)):
        raise Conflict(f"The slug {slug!r} is taken.")
    now = now_ms()
    made = slug or slugs.free(name, fallback="team", is_taken=lambda wanted: _slug_is_taken(connection, wanted))
    team = Team(new_id(), name, made, metadata or {}, now, now)
    connection.execute(insert(teams).values({key: getattr(team, key) for key in Team.__struct_fields__}))
    entries.record(connection, caller.within(team.id), "team.create", target=("team", team.id))
    return team


def default_owner(connection: Connection, *, request_id: str) -> Caller | None:
    """Return whoever local-dev mode lets in: the owner of the team `default`; None when there is no such team."""
    team_id = _BY_SLUG.first(connection, {"slug": DEFAULT})
    if team_id is None:
        return None
    return Caller(team_id=team_id, scopes=frozenset({EVERYTHING}), request_id=request_id)


def find(connection: Connection, caller: Caller, id_or_slug: str) -> Team:
    """Return a team by id or slug, for whoever may see every team; NotFound otherwise."""
    caller.require(SERVER_ADMIN)
    wanted = or_(teams.c.id == id_or_slug, teams.c.slug == id_or_slug)
    row = connection.execute(every(teams, *_COLUMNS).where(wanted)).first()
    if row is None:
        raise NotFound("team")
    return Team(*row)


def everybody(connection: Connection, caller: Caller) -> list[Team]:
    """Return all teams, oldest first; needs server:admin."""
    caller.require(SERVER_ADMIN)
    rows = connection.execute(every(teams, *_COLUMNS).order_by(teams.c.created_at_epoch, teams.c.id))
    return [Team(*row) for row in rows]


def listing(connection: Connection, caller: Caller, *, limit: int, cursor: str | None) -> paging.Page[Team]:
    """Return the teams the caller sees, newest first: all of them with server:admin, else his own."""
    sees_all = caller.may(SERVER_ADMIN)
    if not sees_all:
        caller.require(MEMORIES_READ)
    return paging.page(
        connection,
        every(teams, *_COLUMNS) if sees_all else owned(teams, caller, *_COLUMNS),
        Team,
        (teams.c.created_at_epoch, teams.c.id),
        limit=limit,
        cursor=cursor,
        bound_to=paging.binding(caller, ["teams", sees_all]),
    )


def get(connection: Connection, caller: Caller, team_id: str) -> Team:
    """Return a team that the caller sees; NotFound otherwise."""
    if caller.may(SERVER_ADMIN):
        return _found(connection, every(teams, *_COLUMNS), team_id)
    caller.require(MEMORIES_READ)
    return _found(connection, owned(teams, caller, *_COLUMNS), team_id)


def within(connection: Connection, caller: Caller, team_id: str) -> Caller:
    """Return the caller acting inside the team that a path names; NotFound when it is not his.

    A caller of no team acts in any: whether he may do what he asks for there is for its own rule to say.
    """
    if caller.team_id is None:
        return caller.within(_found(connection, every(teams, *_COLUMNS), team_id).id)
    _found(connection, owned(teams, caller, *_COLUMNS), team_id)
    return caller


def change(connection: Connection, caller: Caller, team_id: str, changes: dict[str, Any]) -> Team:
    """Set name, slug or metadata; what is absent from `changes` stays."""
    caller = _ruling(connection, caller, team_id)
    standing = _found(connection, owned(teams, caller, *_COLUMNS), team_id)
    slug = changes.get("slug")
    if slug is not None and slug != standing.slug and _slug_is_taken(connection, slugs.validated(slug)):
        raise Conflict(f"The slug {slug!r} is taken.")
    if changes:
        connection.execute(update(teams).where(teams.c.id == team_id).values(**changes, updated_at_epoch=now_ms()))
        entries.record(connection, caller, "team.update", target=("team", team_id))
    return _found(connection, owned(teams, caller, *_COLUMNS), team_id)


def remove_some(connection: Connection, caller: Caller, team_id: str) -> int:
    """Delete up to REMOVAL_BATCH rows of a team; return how many. Zero means that remove() has little left to do.

    One cascade over a whole team would hold the write lock for seconds.
    """
    caller = _removing(connection, caller, team_id)
    for table in _NUMEROUS:
        (key,) = table.primary_key
        some = owned(table, caller, key).limit(REMOVAL_BATCH).scalar_subquery()
        if removed := connection.execute(delete(table).where(key.in_(some))).rowcount:
            return removed
    return 0


def remove(connection: Connection, caller: Caller, team_id: str) -> None:
    """Delete a team with everything of it; only an owner may, or whoever administers the server."""
    acting = _removing(connection, caller, team_id)
    connection.execute(delete(teams).where(teams.c.id == acting.team_id))
    for table in _UNTIED:  # afterwards: who writes for the team holds it until he has committed
        connection.execute(delete(table).where(table.c.team_id == acting.team_id))
    entries.record(connection, caller, "team.delete", target=("team", team_id))


def _ruling(connection: Connection, caller: Caller, team_id: str) -> Caller:
    """Return the caller within the team; he must administer it, or the server."""
    if caller.may(SERVER_ADMIN):
        return replace(within(connection, caller, team_id), scopes=frozenset({EVERYTHING}))
    caller.require(TEAM_ADMIN)
    caller = within(connection, caller, team_id)
    caller.require_whole_team()
    return caller


def _removing(connection: Connection, caller: Caller, team_id: str) -> Caller:
    acting = _ruling(connection, caller, team_id)
    if acting.rank < RANKS["owner"]:
        raise Forbidden("Only an owner deletes a team.")
    return acting


def _found(connection: Connection, among: Select[Any], team_id: str) -> Team:
    row = connection.execute(among.where(teams.c.id == team_id)).first()
    if row is None:
        raise NotFound("team")
    return Team(*row)


def _slug_is_taken(connection: Connection, slug: str) -> bool:
    with rls_bypass.lifted(connection):
        return connection.scalar(select(every(teams).where(teams.c.slug == slug).exists())) or False
