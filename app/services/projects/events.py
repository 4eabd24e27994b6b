"""Events: what agents' hooks report. An event that is sent again is stored once."""

import hashlib
from collections.abc import Sequence
from typing import Any, Final

import msgspec
from sqlalchemy import Connection, bindparam

from app.caller import MEMORIES_WRITE, Caller
from app.clock import new_id, now_ms
from app.errors import NotFound
from app.services.audit import entries
from app.services.projects import projects, sessions
from app.services.shared import paging, platforms
from app.store.models import agent_events
from app.store.prepared import PreparedStatement, prepare_insert
from app.store.records import Event, Session, columns
from app.store.scope import owned, owned_template, parameters

_COLUMNS: Final = columns(agent_events, Event)
_INSERT: Final = prepare_insert(agent_events)
_BY_ID: Final = PreparedStatement(
    owned_template(agent_events, *_COLUMNS).where(agent_events.c.id == bindparam("id")), Event
)
_BY_HASH: Final = PreparedStatement(
    owned_template(agent_events, *_COLUMNS).where(
        agent_events.c.project_id == bindparam("project_id"), agent_events.c.event_hash == bindparam("event_hash")
    ),
    Event,
)


class NewEvent(msgspec.Struct, frozen=True, kw_only=True):
    """An event as submitted by a client."""

    project_id: str
    source_type: str
    event_type: str
    occurred_at_epoch: int
    server_session_id: str | None = None
    content_session_id: str | None = None
    memory_session_id: str | None = None
    platform_source: str | None = None
    payload: dict[str, Any] = {}
    source_event_id: str | None = None
    metadata: dict[str, Any] = {}


def add(connection: Connection, caller: Caller, new: NewEvent) -> tuple[Event, bool]:
    """Store an event, or find the row of the same event; return it and whether it is new."""
    caller.require(MEMORIES_WRITE)
    projects.require(connection, caller, new.project_id)
    session = _session_of(connection, caller, new)
    event_hash = _hash(new, session)
    identity = {**parameters(caller), "project_id": new.project_id, "event_hash": event_hash}
    if existing := _BY_HASH.first(connection, identity):
        return existing, False
    event = _event(caller, new, session)
    _INSERT.run(connection, {**msgspec.structs.asdict(event), "event_hash": event_hash})
    entries.record(connection, caller, "event.create", target=("event", event.id), project_id=event.project_id)
    return event, True


def add_batch(connection: Connection, caller: Caller, batch: Sequence[NewEvent]) -> list[Event]:
    """Store events, all or none, in input order; repeated events resolve to one row."""
    return [add(connection, caller, new)[0] for new in batch]


def get(connection: Connection, caller: Caller, event_id: str) -> Event:
    """Return an event in the caller's scope; NotFound otherwise."""
    event = _BY_ID.first(connection, {**parameters(caller), "id": event_id})
    if event is None:
        raise NotFound("event")
    return event


def list_page(
    connection: Connection,
    caller: Caller,
    *,
    project_id: str | None,
    server_session_id: str | None,
    limit: int,
    cursor: str | None,
) -> paging.Page[Event]:
    """Return the events in the caller's scope, newest first."""
    statement = owned(agent_events, caller, *_COLUMNS)
    if project_id is not None:
        projects.require(connection, caller, project_id)
        statement = statement.where(agent_events.c.project_id == project_id)
    if server_session_id is not None:
        statement = statement.where(agent_events.c.server_session_id == server_session_id)
    return paging.page(
        connection,
        statement,
        Event,
        (agent_events.c.occurred_at_epoch, agent_events.c.id),
        limit=limit,
        cursor=cursor,
        bound_to=paging.binding(caller, ["events", project_id, server_session_id]),
    )


def _session_of(connection: Connection, caller: Caller, new: NewEvent) -> Session | None:
    """Return the session of an event: the one it names, else the one with its content id if that already exists."""
    if new.server_session_id is not None:
        return sessions.require_of_project(connection, caller, new.server_session_id, new.project_id)
    if new.content_session_id is not None:
        return sessions.by_content_id(connection, caller, new.project_id, new.content_session_id)
    return None


def _hash(new: NewEvent, session: Session | None) -> str:
    """Return a digest of an event's identity: its client-assigned id, else session, type, time and payload.

    The session is identified by its content id where it has one, so that an event sent both before and after its
    session was created is one event.
    """
    if new.source_event_id is not None:
        identity: list[Any] = ["id", new.source_event_id]
    else:
        session_id = session.content_session_id or session.id if session else None
        run_id = new.content_session_id or session_id or new.memory_session_id
        identity = ["all", run_id, new.source_type, new.event_type, new.occurred_at_epoch, new.payload]
    return hashlib.sha256(msgspec.json.encode(identity, order="deterministic")).hexdigest()


def _event(caller: Caller, new: NewEvent, session: Session | None) -> Event:
    return Event(
        id=new_id(),
        team_id=caller.team_id or "",
        project_id=new.project_id,
        server_session_id=session.id if session else None,
        content_session_id=new.content_session_id,
        memory_session_id=new.memory_session_id,
        platform_source=platforms.normalise(new.platform_source),
        source_type=new.source_type,
        event_type=new.event_type,
        source_event_id=new.source_event_id,
        payload=new.payload,
        metadata=new.metadata,
        occurred_at_epoch=new.occurred_at_epoch,
        created_at_epoch=now_ms(),
    )
