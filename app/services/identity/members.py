"""Members: who belongs to a team, in which role. Nobody grants or removes a role above his own."""

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


def listing(connection: Connection, caller: Caller, *, limit: int, cursor: str | None) -> paging.Page[Member]:
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


def everybody(connection: Connection, caller: Caller) -> list[Member]:
    """Return every member of the caller's team, by name."""
    rows = connection.execute(owned(team_members, caller, *_COLUMNS).order_by(team_members.c.user_id))
    return [Member(*row) for row in rows]


def add(connection: Connection, caller: Caller, *, user_id: str, role: Role) -> Member:
    """Take somebody into the caller's team; Conflict when he is in it already."""
    _require_admin(caller)
    if not _USER_ID.fullmatch(user_id):
        raise Invalid.field("userId", "allowed are up to 200 characters without blanks and slashes")
    _require_rank(caller, role)
    standing = owned(team_members, caller, team_members.c.user_id).where(team_members.c.user_id == user_id)
    if connection.scalar(standing) is not None:
        raise Conflict("The team has this member already.")
    now = now_ms()
    member = Member(caller.team_id or "", user_id, role, now, now)
    connection.execute(insert(team_members).values({name: getattr(member, name) for name in Member.__struct_fields__}))
    _record(connection, caller, "member.create", user_id)
    return member


def change(connection: Connection, caller: Caller, user_id: str, *, role: Role) -> Member:
    """Give a member another role, which holds for his keys from their next request; Conflict for the last owner."""
    _require_admin(caller)
    standing = get(connection, caller, user_id)
    _require_rank(caller, standing.role)
    _require_rank(caller, role)
    if role == standing.role:
        return standing
    _require_owner_left(connection, caller, standing)
    now = now_ms()
    connection.execute(update(team_members).where(_is(standing)).values(role=role, updated_at_epoch=now))
    _record(connection, caller, "member.update", user_id)
    return Member(standing.team_id, user_id, role, standing.created_at_epoch, now)


def remove(connection: Connection, caller: Caller, user_id: str) -> None:
    """Take a member out of the team, with his keys; Conflict for the last owner."""
    _require_admin(caller)
    standing = get(connection, caller, user_id)
    _require_rank(caller, standing.role)
    _require_owner_left(connection, caller, standing)
    connection.execute(delete(team_members).where(_is(standing)))
    _record(connection, caller, "member.delete", user_id)


def _is(member: Member) -> ColumnElement[bool]:
    return (team_members.c.team_id == member.team_id) & (team_members.c.user_id == member.user_id)


def _require_admin(caller: Caller) -> None:
    caller.require(TEAM_ADMIN)
    caller.require_whole_team()


def _require_rank(caller: Caller, role: Role) -> None:
    if RANKS[role] > caller.rank:
        raise Forbidden(f"The role {role} is above the caller's own.")


def _require_owner_left(connection: Connection, caller: Caller, leaving: Member) -> None:
    if leaving.role != "owner":
        return
    # the server's owner may be at the same: on PostgreSQL his turn to write is another one than the team's
    connection.execute(owned(teams, caller, teams.c.id).with_for_update())
    owners = owned(team_members, caller, func.count()).where(team_members.c.role == "owner")
    if connection.scalar(owners) == 1:
        raise Conflict("The last owner cannot leave: make somebody else owner first.")


def _record(connection: Connection, caller: Caller, action: str, user_id: str) -> None:
    entries.record(connection, caller, action, target=("member", user_id))
