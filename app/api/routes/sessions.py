"""/v1/sessions: one run of an agent."""

from litestar import Response, Router, get, post
from litestar.params import JSONBody
from msgspec import structs

from app.api.http.idempotency import PostResult, run_once
from app.api.http.parameters import Cursor, Limit, PathId, ProjectId
from app.api.http.request import ApiRequest
from app.api.http.schemas import EpochMs, Id, Label, LenientWire, Object, Text, Wire
from app.api.http.thread_pools import reading, writing
from app.caller import MEMORIES_READ, MEMORIES_WRITE
from app.services.projects import sessions
from app.store.records import Session


class SessionStart(LenientWire, frozen=True, kw_only=True):
    """A session to start, with the ids that the client uses for it. Unknown keys are ignored."""

    project_id: Id
    external_session_id: Label | None = None
    content_session_id: Label | None = None
    memory_session_id: Label | None = None
    platform_source: Label | None = None
    agent_id: Label | None = None
    agent_type: Label | None = None
    title: Text | None = None
    metadata: Object | None = None
    started_at_epoch: EpochMs | None = None


class SessionEnd(LenientWire, frozen=True, kw_only=True):
    """An optional, empty body. Unknown keys are ignored."""


class SessionView(Wire, frozen=True, kw_only=True):
    """A session."""

    id: str
    team_id: str
    project_id: str
    external_session_id: str | None
    content_session_id: str | None
    memory_session_id: str | None
    platform_source: str
    agent_id: str | None
    agent_type: str | None
    title: str | None
    metadata: Object
    started_at_epoch: int
    ended_at_epoch: int | None
    created_at_epoch: int
    updated_at_epoch: int


class SessionReply(Wire, frozen=True, kw_only=True):
    """One session."""

    session: SessionView


class SessionPage(Wire, frozen=True, kw_only=True):
    """A page of sessions."""

    sessions: list[SessionView]
    next_cursor: str | None


@post(
    "/sessions/start", operation_id="startSession", scope=MEMORIES_WRITE, idempotent=True, located=True, also_200=True
)
@writing
def start_session(request: ApiRequest, data: JSONBody[SessionStart]) -> Response[SessionReply]:
    """Start a session, or return the existing one with 200 if its ids are known.

    Ids that are sent later are added to the session.
    """

    def perform() -> PostResult[SessionReply]:
        session, is_new = sessions.start(connection, request.caller, sessions.NewSession(**structs.asdict(data)))
        location = {"Location": f"/v1/sessions/{session.id}"}
        return PostResult([session.id], 201 if is_new else 200, _reply(session), location)

    with request.database.write() as connection:
        return run_once(
            request,
            connection,
            perform=perform,
            replay=lambda ids: _reply(sessions.get(connection, request.caller, ids[0])),
        )


@get("/sessions", operation_id="listSessions", scope=MEMORIES_READ)
@reading
def list_sessions(
    request: ApiRequest, project_id: ProjectId = None, limit: Limit = 50, cursor: Cursor = None
) -> SessionPage:
    """List sessions, newest first."""
    with request.database.read() as connection:
        page = sessions.list_page(connection, request.caller, project_id=project_id, limit=limit, cursor=cursor)
    return SessionPage(sessions=[to_session_view(session) for session in page.rows], next_cursor=page.next_cursor)


@get("/sessions/{session_id:str}", operation_id="getSession", scope=MEMORIES_READ)
@reading
def get_session(request: ApiRequest, session_id: PathId) -> SessionReply:
    """Get a session."""
    with request.database.read_one() as connection:
        return _reply(sessions.get(connection, request.caller, session_id))


@post(
    "/sessions/{session_id:str}/end", operation_id="endSession", scope=MEMORIES_WRITE, status_code=200, idempotent=True
)
@writing
def end_session(
    request: ApiRequest, session_id: PathId, data: JSONBody[SessionEnd | None] = None
) -> Response[SessionReply]:
    """End a session. Ending it again keeps the first end time."""

    def perform() -> PostResult[SessionReply]:
        return PostResult([session_id], 200, _reply(sessions.end(connection, request.caller, session_id)))

    with request.database.write() as connection:
        return run_once(
            request,
            connection,
            perform=perform,
            replay=lambda ids: _reply(sessions.get(connection, request.caller, ids[0])),
        )


router = Router("/", route_handlers=[start_session, list_sessions, get_session, end_session], tags=["sessions"])


def to_session_view(session: Session) -> SessionView:
    """Return a session as it is sent."""
    return SessionView(**structs.asdict(session))


def _reply(session: Session) -> SessionReply:
    return SessionReply(session=to_session_view(session))
