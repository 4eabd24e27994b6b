"""/v1/teams: the tenants of this server. A team's key sees its own team only."""

from litestar import Response, Router, delete, get, patch, post
from litestar.params import JSONBody
from msgspec import UNSET, UnsetType, structs

from app.api.http.idempotency import PostResult, run_once
from app.api.http.parameters import Cursor, Limit, PathId
from app.api.http.request import ApiRequest
from app.api.http.schemas import Name, Object, Wire, extract_changes
from app.api.http.thread_pools import reading, writing
from app.caller import SERVER_ADMIN
from app.services.identity import teams
from app.store.records import Team


class TeamCreate(Wire, frozen=True, kw_only=True):
    """A team to create. An omitted slug is derived from the name."""

    name: Name
    slug: Name | None = None
    metadata: Object | None = None


class TeamPatch(Wire, frozen=True, kw_only=True):
    """The fields of a team to change."""

    name: Name | UnsetType = UNSET
    slug: Name | UnsetType = UNSET
    metadata: Object | UnsetType | None = UNSET


class TeamView(Wire, frozen=True, kw_only=True):
    """A team."""

    id: str
    name: str
    slug: str
    metadata: Object
    created_at_epoch: int
    updated_at_epoch: int


class TeamReply(Wire, frozen=True, kw_only=True):
    """One team."""

    team: TeamView


class TeamPage(Wire, frozen=True, kw_only=True):
    """A page of teams."""

    teams: list[TeamView]
    next_cursor: str | None


class TeamDeleted(Wire, frozen=True, kw_only=True):
    """The team was deleted with everything in it."""

    deleted: bool
    id: str


@get("/teams", operation_id="listTeams")
@reading
def list_teams(request: ApiRequest, limit: Limit = 50, cursor: Cursor = None) -> TeamPage:
    """List the teams that the credential can see: all of them with `server:admin`, otherwise its own."""
    with request.database.read() as connection:
        page = teams.list_page(connection, request.caller, limit=limit, cursor=cursor)
    return TeamPage(teams=[_view(team) for team in page.rows], next_cursor=page.next_cursor)


@post("/teams", operation_id="createTeam", scope=SERVER_ADMIN, idempotent=True, located=True)
@writing
def create_team(request: ApiRequest, data: JSONBody[TeamCreate]) -> Response[TeamReply]:
    """Create a team. 409 if the slug is taken."""

    def perform() -> PostResult[TeamReply]:
        team = teams.create(connection, request.caller, **structs.asdict(data))
        return PostResult([team.id], 201, _reply(team), {"Location": f"/v1/teams/{team.id}"})

    with request.database.write() as connection:
        return run_once(
            request,
            connection,
            perform=perform,
            replay=lambda ids: _reply(teams.get(connection, request.caller, ids[0])),
        )


@get("/teams/{team_id:str}", operation_id="getTeam")
@reading
def get_team(request: ApiRequest, team_id: PathId) -> TeamReply:
    """Get a team."""
    with request.database.read() as connection:
        return _reply(teams.get(connection, request.caller, team_id))


@patch("/teams/{team_id:str}", operation_id="updateTeam")
@writing
def update_team(request: ApiRequest, team_id: PathId, data: JSONBody[TeamPatch]) -> TeamReply:
    """Update a team. Requires `server:admin`, or `team:admin` for your own team."""
    with request.database.write() as connection:
        return _reply(teams.change(connection, request.caller, team_id, extract_changes(data, metadata={})))


@delete("/teams/{team_id:str}", operation_id="deleteTeam", status_code=200)
async def delete_team(request: ApiRequest, team_id: PathId) -> TeamDeleted:
    """Delete a team with everything in it. Requires an owner of the team, or `server:admin`.

    If the request is interrupted, send it again to finish.
    """
    write = request.app_state.thread_pools.write
    while await write(lambda: _remove_some(request, team_id)):  # other writers get their turn in between
        pass
    await write(lambda: _remove(request, team_id))
    return TeamDeleted(deleted=True, id=team_id)


def _remove_some(request: ApiRequest, team_id: str) -> int:
    with request.database.write() as connection:
        return teams.delete_batch(connection, request.caller, team_id)


def _remove(request: ApiRequest, team_id: str) -> None:
    with request.database.write() as connection:
        teams.remove(connection, request.caller, team_id)


router = Router("/", route_handlers=[list_teams, create_team, get_team, update_team, delete_team], tags=["teams"])


def _view(team: Team) -> TeamView:
    return TeamView(**structs.asdict(team))


def _reply(team: Team) -> TeamReply:
    return TeamReply(team=_view(team))
