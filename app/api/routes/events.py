"""/v1/events: what agents' hooks report."""

from typing import Annotated

from litestar import Response, Router, get, post
from litestar.params import JSONBody, QueryParameter
from msgspec import Meta, structs

from app.api.http.idempotency import PostResult, begin_insert, run_once
from app.api.http.parameters import Cursor, Limit, PathId, ProjectId
from app.api.http.request import ApiRequest
from app.api.http.schemas import MAX_BATCH, EpochMs, Id, Label, LenientWire, Object, Wire
from app.api.http.thread_pools import reading, writing
from app.caller import MEMORIES_READ, MEMORIES_WRITE
from app.services.projects import events
from app.store.records import Event

Ignored = Annotated[bool | None, QueryParameter(description="Accepted for older clients; has no effect.")]


class EventCreate(LenientWire, frozen=True, kw_only=True):
    """An event. Unknown keys are ignored."""

    project_id: Id
    source_type: Label
    event_type: Label
    occurred_at_epoch: EpochMs
    server_session_id: Id | None = None
    content_session_id: Label | None = None
    memory_session_id: Label | None = None
    platform_source: Label | None = None
    payload: Object | None = None
    source_event_id: Label | None = None
    metadata: Object | None = None


class EventView(Wire, frozen=True, kw_only=True):
    """An event."""

    id: str
    team_id: str
    project_id: str
    server_session_id: str | None
    content_session_id: str | None
    memory_session_id: str | None
    platform_source: str
    source_type: str
    event_type: str
    source_event_id: str | None
    payload: Object
    metadata: Object
    occurred_at_epoch: int
    created_at_epoch: int


class EventReply(Wire, frozen=True, kw_only=True):
    """One event."""

    event: EventView


class EventBatch(Wire, frozen=True, kw_only=True):
    """Stored events in input order."""

    events: list[EventView]


class EventPage(Wire, frozen=True, kw_only=True):
    """A page of events."""

    events: list[EventView]
    next_cursor: str | None


@post("/events", operation_id="createEvent", scope=MEMORIES_WRITE, idempotent=True, located=True, also_200=True)
@writing
def create_event(
    request: ApiRequest, data: JSONBody[EventCreate], generate: Ignored = None, wait: Ignored = None
) -> Response[EventReply]:
    """Store an event. Sending the same event again returns the existing one with 200."""

    def perform() -> PostResult[EventReply]:
        event, is_new = events.add(connection, request.caller, _new(data))
        return PostResult([event.id], 201 if is_new else 200, _reply(event), {"Location": f"/v1/events/{event.id}"})

    with begin_insert(request) as connection:
        return run_once(
            request,
            connection,
            perform=perform,
            replay=lambda ids: _reply(events.get(connection, request.caller, ids[0])),
        )


@post("/events/batch", operation_id="createEvents", scope=MEMORIES_WRITE, idempotent=True)
@writing
def create_events(
    request: ApiRequest,
    data: JSONBody[Annotated[list[EventCreate], Meta(min_length=1, max_length=MAX_BATCH)]],
    generate: Ignored = None,
    wait: Ignored = None,
) -> Response[EventBatch]:
    """Store up to 500 events, all or none."""

    def perform() -> PostResult[EventBatch]:
        stored = events.add_batch(connection, request.caller, [_new(item) for item in data])
        return PostResult([event.id for event in stored], 201, _batch(stored))

    with request.database.write() as connection:
        return run_once(
            request,
            connection,
            perform=perform,
            replay=lambda ids: _batch([events.get(connection, request.caller, event_id) for event_id in ids]),
        )


@get("/events", operation_id="listEvents", scope=MEMORIES_READ)
@reading
def list_events(
    request: ApiRequest,
    project_id: ProjectId = None,
    server_session_id: Annotated[str | None, QueryParameter(name="serverSessionId")] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> EventPage:
    """List events, newest first."""
    with request.database.read() as connection:
        page = events.list_page(
            connection,
            request.caller,
            project_id=project_id,
            server_session_id=server_session_id,
            limit=limit,
            cursor=cursor,
        )
    return EventPage(events=[_view(event) for event in page.rows], next_cursor=page.next_cursor)


@get("/events/{event_id:str}", operation_id="getEvent", scope=MEMORIES_READ)
@reading
def get_event(request: ApiRequest, event_id: PathId) -> EventReply:
    """Get an event."""
    with request.database.read_one() as connection:
        return _reply(events.get(connection, request.caller, event_id))


router = Router("/", route_handlers=[create_event, create_events, list_events, get_event], tags=["events"])


def _new(item: EventCreate) -> events.NewEvent:
    fields = structs.asdict(item)
    return events.NewEvent(**{**fields, "payload": item.payload or {}, "metadata": item.metadata or {}})


def _view(event: Event) -> EventView:
    return EventView(**structs.asdict(event))


def _reply(event: Event) -> EventReply:
    return EventReply(event=_view(event))


def _batch(stored: list[Event]) -> EventBatch:
    return EventBatch(events=[_view(event) for event in stored])
