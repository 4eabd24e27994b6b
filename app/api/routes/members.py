"""/v1/teams/{id}/members: who belongs to a team, in which role."""

from typing import Annotated

from litestar import Response, Router, delete, get, patch, post
from litestar.params import JSONBody, PathParameter
from msgspec import structs
from sqlalchemy import Connection

from app.api.http.idempotency import PostResult, run_once
from app.api.http.parameters import Cursor, Limit, PathId
from app.api.http.request import ApiRequest
from app.api.http.schemas import Id, Wire
from app.api.http.thread_pools import reading, writing
from app.caller import TEAM_ADMIN, Caller, Role
from app.services.identity import members, teams
from app.store.records import Member

UserId = Annotated[str, PathParameter(description="Your identifier for the member, e.g. an email address.")]


class MemberCreate(Wire, frozen=True, kw_only=True):
    """A member to add. `userId` is your own identifier for the person, without spaces or slashes."""

    user_id: Id
    role: Role


class MemberPatch(Wire, frozen=True, kw_only=True):
    """The new role."""

    role: Role


class MemberView(Wire, frozen=True, kw_only=True):
    """A member of a team."""

    team_id: str
    user_id: str
    role: Role
    created_at_epoch: int
    updated_at_epoch: int


class MemberReply(Wire, frozen=True, kw_only=True):
    """One member."""

    member: MemberView


class MemberPage(Wire, frozen=True, kw_only=True):
    """A page of members."""

    members: list[MemberView]
    next_cursor: str | None


class MemberRemoved(Wire, frozen=True, kw_only=True):
    """The member was removed and their API keys revoked."""

    deleted: bool
    user_id: str


@get("/teams/{team_id:str}/members", operation_id="listMembers", scope=TEAM_ADMIN)
@reading
def list_members(request: ApiRequest, team_id: PathId, limit: Limit = 50, cursor: Cursor = None) -> MemberPage:
    """List the members of a team, newest first."""
    with request.database.read() as connection:
        page = members.list_page(connection, _caller(request, connection, team_id), limit=limit, cursor=cursor)
    return MemberPage(members=[_view(member) for member in page.rows], next_cursor=page.next_cursor)


@post("/teams/{team_id:str}/members", operation_id="createMember", scope=TEAM_ADMIN, idempotent=True)
@writing
def create_member(request: ApiRequest, team_id: PathId, data: JSONBody[MemberCreate]) -> Response[MemberReply]:
    """Add a member to the team, in a role no higher than your own. 409 if they are already a member."""

    def perform() -> PostResult[MemberReply]:
        member = members.add(connection, caller, user_id=data.user_id, role=data.role)
        return PostResult([member.user_id], 201, _reply(member))

    with request.database.write() as connection:
        caller = _caller(request, connection, team_id)
        return run_once(
            request, connection, perform=perform, replay=lambda ids: _reply(members.get(connection, caller, ids[0]))
        )


@patch("/teams/{team_id:str}/members/{user_id:str}", operation_id="updateMember", scope=TEAM_ADMIN)
@writing
def update_member(request: ApiRequest, team_id: PathId, user_id: UserId, data: JSONBody[MemberPatch]) -> MemberReply:
    """Change a member's role. Neither the old nor the new one may be higher than your own. 409 for the last owner."""
    with request.database.write() as connection:
        caller = _caller(request, connection, team_id)
        return _reply(members.change(connection, caller, user_id, role=data.role))


@delete(
    "/teams/{team_id:str}/members/{user_id:str}",
    operation_id="deleteMember",
    scope=TEAM_ADMIN,
    status_code=200,
    errors=(409,),
)
@writing
def delete_member(request: ApiRequest, team_id: PathId, user_id: UserId) -> MemberRemoved:
    """Remove a member and revoke their API keys. 409 for the last owner."""
    with request.database.write() as connection:
        members.remove(connection, _caller(request, connection, team_id), user_id)
    return MemberRemoved(deleted=True, user_id=user_id)


router = Router("/", route_handlers=[list_members, create_member, update_member, delete_member], tags=["members"])


def _caller(request: ApiRequest, connection: Connection, team_id: str) -> Caller:
    return teams.within(connection, request.caller, team_id)


def _view(member: Member) -> MemberView:
    return MemberView(**structs.asdict(member))


def _reply(member: Member) -> MemberReply:
    return MemberReply(member=_view(member))
