"""Sessions: one run of an agent, identified by the ids that its clients use for it."""

from typing import Any, Final

import msgspec
from sqlalchemy import ColumnElement, Connection, bindparam, update

from app.caller import MEMORIES_WRITE, Caller
from app.clock import new_id, now_ms
from app.errors import NotFound
from app.services.audit import entries
from app.services.projects import projects
from app.services.shared import paging, platforms
from app.store.models import agent_events, server_sessions
from app.store.prepared import PreparedStatement, prepare_insert
from app.store.records import Session, columns
from app.store.scope import owned, owned_template, parameters

_COLUMNS: Final = columns(server_sessions, Session)
_INSERT: Final = prepare_insert(server_sessions)
_BY_ID: Final = PreparedStatement(
    owned_template(server_sessions, *_COLUMNS).where(server_sessions.c.id == bindparam("id")), Session
)


class NewSession(msgspec.Struct, frozen=True, kw_only=True):
    """A session as submitted by a client, which identifies it by an external id, else by a content id."""

    project_id: str
    external_session_id: str | None = None
    content_session_id: str | None = None
    memory_session_id: str | None = None
    platform_source: str | None = None
    agent_id: str | None = None
    agent_type: str | None = None
    title: str | None = None
    metadata: dict[str, Any] | None = None
    started_at_epoch: int | None = None


def start(connection: Connection, caller: Caller, new: NewSession) -> tuple[Session, bool]:
    """Create a session, or complete the existing one with the same ids; return it and whether it is new."""
    caller.require(MEMORIES_WRITE)
    projects.require(connection, caller, new.project_id)
    platform = platforms.normalise(new.platform_source)
    existing = _find_existing(connection, caller, new, platform)
    session = _complete(connection, existing, new) if existing else _insert(connection, caller, new, platform)
    if existing is None or session is not existing:
        action = "session.update" if existing else "session.start"
        entries.record(connection, caller, action, target=("session", session.id), project_id=session.project_id)
    _link_earlier_events(connection, session)
    return session, existing is None


def get(connection: Connection, caller: Caller, session_id: str) -> Session:
    """Return a session in the caller's scope; NotFound otherwise."""
    session = _BY_ID.first(connection, {**parameters(caller), "id": session_id})
    if session is None:
        raise NotFound("session")
    return session


def require_of_project(connection: Connection, caller: Caller, session_id: str, project_id: str) -> Session:
    """Return a session of the project; NotFound when there is none, or when it belongs to another project."""
    session = get(connection, caller, session_id)
    if session.project_id != project_id:
        raise NotFound("session")
    return session


def by_content_id(connection: Connection, caller: Caller, project_id: str, content_session_id: str) -> Session | None:
    """Return the newest session of the project with this content id, if there is one."""
    matches = (server_sessions.c.project_id == project_id) & (
        server_sessions.c.content_session_id == content_session_id
    )
    return _newest(connection, caller, matches)


def list_page(
    connection: Connection, caller: Caller, *, project_id: str | None, limit: int, cursor: str | None
) -> paging.Page[Session]:
    """Return the sessions in the caller's scope, or of one project, newest first."""
    statement = owned(server_sessions, caller, *_COLUMNS)
    if project_id is not None:
        projects.require(connection, caller, project_id)
        statement = statement.where(server_sessions.c.project_id == project_id)
    return paging.page(
        connection,
        statement,
        Session,
        (server_sessions.c.started_at_epoch, server_sessions.c.id),
        limit=limit,
        cursor=cursor,
        bound_to=paging.binding(caller, ["sessions", project_id]),
    )


def end(connection: Connection, caller: Caller, session_id: str) -> Session:
    """End a session; one that has already ended keeps its first end time."""
    caller.require(MEMORIES_WRITE)
    session = get(connection, caller, session_id)
    if session.ended_at_epoch is not None:
        return session
    now = now_ms()
    _set(connection, session, {"ended_at_epoch": now, "updated_at_epoch": now})
    entries.record(connection, caller, "session.end", target=("session", session.id), project_id=session.project_id)
    return msgspec.structs.replace(session, ended_at_epoch=now, updated_at_epoch=now)


def _find_existing(connection: Connection, caller: Caller, new: NewSession, platform: str) -> Session | None:
    matches = (server_sessions.c.project_id == new.project_id) & (server_sessions.c.platform_source == platform)
    if new.external_session_id is not None:
        external_id = server_sessions.c.external_session_id
        session = _newest(connection, caller, matches & (external_id == new.external_session_id))
        if session or new.content_session_id is None:
            return session
        matches &= external_id.is_(None)
    if new.content_session_id is None:
        return None
    return _newest(connection, caller, matches & (server_sessions.c.content_session_id == new.content_session_id))


def _newest(connection: Connection, caller: Caller, where: ColumnElement[bool]) -> Session | None:
    newest = (server_sessions.c.started_at_epoch.desc(), server_sessions.c.id.desc())
    row = connection.execute(owned(server_sessions, caller, *_COLUMNS).where(where).order_by(*newest).limit(1)).first()
    return Session(*row) if row else None


def _insert(connection: Connection, caller: Caller, new: NewSession, platform: str) -> Session:
    now = now_ms()
    session = Session(
        id=new_id(),
        team_id=caller.team_id or "",
        project_id=new.project_id,
        external_session_id=new.external_session_id,
        content_session_id=new.content_session_id,
        memory_session_id=new.memory_session_id,
        platform_source=platform,
        agent_id=new.agent_id,
        agent_type=new.agent_type,
        title=new.title,
        metadata=new.metadata or {},
        started_at_epoch=now if new.started_at_epoch is None else new.started_at_epoch,
        ended_at_epoch=None,
        created_at_epoch=now,
        updated_at_epoch=now,
    )
    _INSERT.run(connection, msgspec.structs.asdict(session))
    return session


_LEARNED_LATER: Final = (
    "external_session_id",
    "content_session_id",
    "memory_session_id",
    "agent_id",
    "agent_type",
    "title",
)
"""What a client may only learn after its session has started."""


def _complete(connection: Connection, existing: Session, new: NewSession) -> Session:
    """Fill in the columns of the existing row that are still empty; the others are never overwritten."""
    missing = [name for name in _LEARNED_LATER if getattr(existing, name) is None]
    added = {name: value for name in missing if (value := getattr(new, name))}
    if new.metadata and not existing.metadata:
        added["metadata"] = new.metadata
    if not added:
        return existing
    added["updated_at_epoch"] = now_ms()
    _set(connection, existing, added)
    return msgspec.structs.replace(existing, **added)


def _set(connection: Connection, session: Session, values: dict[str, Any]) -> None:
    connection.execute(update(server_sessions).where(server_sessions.c.id == session.id).values(values))


def _link_earlier_events(connection: Connection, session: Session) -> None:
    """Link the events to this session that arrived before it was created."""
    if session.content_session_id is None:
        return
    connection.execute(
        update(agent_events)
        .where(
            agent_events.c.project_id == session.project_id,
            agent_events.c.content_session_id == session.content_session_id,
            agent_events.c.server_session_id.is_(None),
        )
        .values(server_session_id=session.id)
    )
