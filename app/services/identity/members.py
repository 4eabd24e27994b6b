"""Members: who belongs to a team, in which role. Nobody grants or removes a role above their own."""

import re
from typing import Final

from sqlalchemy import ColumnElement, Connection, delete, func, insert, update

from app.caller import RANKS, TEAM_ADMIN, Caller, Role
from app.clock import now_ms
from app.errors import Conflict, Forbidden, Invalid, NotFound
from app.services.audit import entries
from app.services.shared import paging
from app.store.models import team_members, teams
from app.store.records import Member, columns
from app.store.scope import owned

_COLUMNS: Final = columns(team_members, Member)
_USER_ID: Final = re.compile(r"(?!\.{1,2}$)[^\s/\\\x00-\x1f\x7f]{1,200}")


def get(connection: Connection, caller: Caller, user_id: str) -> Member:
    """Return a member of the caller's team; NotFound otherwise."""
    row = connection.execute(owned(team_members, caller, *_COLUMNS).where(team_members.c.user_id == user_id)).first()
    if row is None:
        raise NotFound("member")
    return Member(*row)


def list_page(connection: Connection, caller: Caller, *, limit: int, cursor: str | None) -> paging.Page[Member]:
    """Return the members of the caller's team, newest first."""
    _require_admin(caller)
    return paging.page(
        connection,
        owned(team_members, caller, *_COLUMNS),
        Member,
        (team_members.c.created_at_epoch, team_members.c.user_id),
        limit=limit,
        cursor=cursor,
        bound_to=paging.binding(caller, "members"),
    )


def list_all(connection: Connection, caller: Caller) -> list[Member]:
    """Return every member of the caller's team, ordered by user id."""
    rows = connection.execute(owned(team_members, caller, *_COLUMNS).order_by(team_members.c.user_id))
    return [Member(*row) for row in rows]


def add(connection: Connection, caller: Caller, *, user_id: str, role: Role) -> Member:
    """Add a member to the caller's team.

    Raises Invalid for a malformed user id, Conflict when the user is already a member, Forbidden when the role is above
    the caller's own.
    """
    _require_admin(caller)
    if not _USER_ID.fullmatch(user_id):
        raise Invalid.field("userId", "must be at most 200 characters and must not contain spaces or slashes")
    _require_rank(caller, role)
    existing = owned(team_members, caller, team_members.c.user_id).where(team_members.c.user_id == user_id)
    if connection.scalar(existing) is not None:
        raise Conflict("This user is already a member of the team.")
    now = now_ms()
    member = Member(caller.team_id or "", user_id, role, now, now)
    connection.execute(insert(team_members).values({name: getattr(member, name) for name in Member.__struct_fields__}))
    _record(connection, caller, "member.create", user_id)
    return member


def change(connection: Connection, caller: Caller, user_id: str, *, role: Role) -> Member:
    """Change a member's role; it applies to their keys from the next request. Raises Conflict for the last owner."""
    _require_admin(caller)
    existing = get(connection, caller, user_id)
    _require_rank(caller, existing.role)
    _require_rank(caller, role)
    if role == existing.role:
        return existing
    _require_owner_left(connection, caller, existing)
    now = now_ms()
    connection.execute(update(team_members).where(_is(existing)).values(role=role, updated_at_epoch=now))
    _record(connection, caller, "member.update", user_id)
    return Member(existing.team_id, user_id, role, existing.created_at_epoch, now)


def remove(connection: Connection, caller: Caller, user_id: str) -> None:
    """Remove a member and delete their API keys. Raises Conflict for the last owner."""
    _require_admin(caller)
    existing = get(connection, caller, user_id)
    _require_rank(caller, existing.role)
    _require_owner_left(connection, caller, existing)
    connection.execute(delete(team_members).where(_is(existing)))
    _record(connection, caller, "member.delete", user_id)


def _is(member: Member) -> ColumnElement[bool]:
    return (team_members.c.team_id == member.team_id) & (team_members.c.user_id == member.user_id)


def _require_admin(caller: Caller) -> None:
    caller.require(TEAM_ADMIN)
    caller.require_whole_team()


def _require_rank(caller: Caller, role: Role) -> None:
    if RANKS[role] > caller.rank:
        raise Forbidden(f"The role {role} is above the caller's own role.")


def _require_owner_left(connection: Connection, caller: Caller, leaving: Member) -> None:
    if leaving.role != "owner":
        return
    # the server's owner may do the same concurrently: on PostgreSQL, under another advisory lock than the team's
    connection.execute(owned(teams, caller, teams.c.id).with_for_update())
    owners = owned(team_members, caller, func.count()).where(team_members.c.role == "owner")
    if connection.scalar(owners) == 1:
        raise Conflict("A team needs at least one owner: make another member an owner first.")


def _record(connection: Connection, caller: Caller, action: str, user_id: str) -> None:
    entries.record(connection, caller, action, target=("member", user_id))
