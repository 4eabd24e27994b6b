"""Sessions: one run of an agent, known by the ids that its clients have for it."""

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
from app.store.prepared import Prepared, inserting
from app.store.records import Session, columns
from app.store.scope import owned, owned_template, parameters

_COLUMNS: Final = columns(server_sessions, Session)
_INSERT: Final = inserting(server_sessions)
_REACHED: Final = Prepared(
    owned_template(server_sessions, *_COLUMNS).where(server_sessions.c.id == bindparam("id")), Session
)


class Start(msgspec.Struct, frozen=True, kw_only=True):
    """What a client says when a run begins. A client knows its run by an external id, else by a content id."""

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


def start(connection: Connection, caller: Caller, begun: Start) -> tuple[Session, bool]:
    """Return the session and whether it is new: the same ids again find the standing row and complete it."""
    caller.require(MEMORIES_WRITE)
    projects.require(connection, caller, begun.project_id)
    platform = platforms.normalise(begun.platform_source)
    standing = _known(connection, caller, begun, platform)
    session = _complete(connection, standing, begun) if standing else _insert(connection, caller, begun, platform)
    if standing is None or session is not standing:
        action = "session.update" if standing else "session.start"
        entries.record(connection, caller, action, target=("session", session.id), project_id=session.project_id)
    _link_waiting_events(connection, session)
    return session, standing is None


def get(connection: Connection, caller: Caller, session_id: str) -> Session:
    """Return a session that the caller reaches; NotFound otherwise."""
    session = _REACHED.first(connection, {**parameters(caller), "id": session_id})
    if session is None:
        raise NotFound("session")
    return session


def require_of_project(connection: Connection, caller: Caller, session_id: str, project_id: str) -> Session:
    """Return a session that belongs to the project; NotFound when it is another's, as when there is none."""
    session = get(connection, caller, session_id)
    if session.project_id != project_id:
        raise NotFound("session")
    return session


def by_content_id(connection: Connection, caller: Caller, project_id: str, content_session_id: str) -> Session | None:
    """Return the newest session of the project with this content id, if there is one."""
    named = (server_sessions.c.project_id == project_id) & (server_sessions.c.content_session_id == content_session_id)
    return _newest(connection, caller, named)


def listing(
    connection: Connection, caller: Caller, *, project_id: str | None, limit: int, cursor: str | None
) -> paging.Page[Session]:
    """Return the sessions the caller reaches, newest first; of one project when it is named."""
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
    """End a session; the first end time stands."""
    caller.require(MEMORIES_WRITE)
    session = get(connection, caller, session_id)
    if session.ended_at_epoch is not None:
        return session
    now = now_ms()
    _set(connection, session, {"ended_at_epoch": now, "updated_at_epoch": now})
    entries.record(connection, caller, "session.end", target=("session", session.id), project_id=session.project_id)
    return msgspec.structs.replace(session, ended_at_epoch=now, updated_at_epoch=now)


def _known(connection: Connection, caller: Caller, begun: Start, platform: str) -> Session | None:
    here = (server_sessions.c.project_id == begun.project_id) & (server_sessions.c.platform_source == platform)
    if begun.external_session_id is not None:
        external = server_sessions.c.external_session_id
        found = _newest(connection, caller, here & (external == begun.external_session_id))
        if found or begun.content_session_id is None:
            return found
        here &= external.is_(None)
    if begun.content_session_id is None:
        return None
    return _newest(connection, caller, here & (server_sessions.c.content_session_id == begun.content_session_id))


def _newest(connection: Connection, caller: Caller, where: ColumnElement[bool]) -> Session | None:
    newest = (server_sessions.c.started_at_epoch.desc(), server_sessions.c.id.desc())
    row = connection.execute(owned(server_sessions, caller, *_COLUMNS).where(where).order_by(*newest).limit(1)).first()
    return Session(*row) if row else None


def _insert(connection: Connection, caller: Caller, begun: Start, platform: str) -> Session:
    now = now_ms()
    session = Session(
        id=new_id(),
        team_id=caller.team_id or "",
        project_id=begun.project_id,
        external_session_id=begun.external_session_id,
        content_session_id=begun.content_session_id,
        memory_session_id=begun.memory_session_id,
        platform_source=platform,
        agent_id=begun.agent_id,
        agent_type=begun.agent_type,
        title=begun.title,
        metadata=begun.metadata or {},
        started_at_epoch=now if begun.started_at_epoch is None else begun.started_at_epoch,
        ended_at_epoch=None,
        created_at_epoch=now,
        updated_at_epoch=now,
    )
    _INSERT.run(connection, msgspec.structs.asdict(session))
    return session


_LATE: Final = ("external_session_id", "content_session_id", "memory_session_id", "agent_id", "agent_type", "title")
"""What a client may learn only after its run began."""


def _complete(connection: Connection, standing: Session, begun: Start) -> Session:
    """Fill in what the standing row does not know yet; what it knows is never replaced."""
    late = {name: value for name in _LATE if (value := getattr(begun, name)) and getattr(standing, name) is None}
    if begun.metadata and not standing.metadata:
        late["metadata"] = begun.metadata
    if not late:
        return standing
    late["updated_at_epoch"] = now_ms()
    _set(connection, standing, late)
    return msgspec.structs.replace(standing, **late)


def _set(connection: Connection, session: Session, values: dict[str, Any]) -> None:
    connection.execute(update(server_sessions).where(server_sessions.c.id == session.id).values(values))


def _link_waiting_events(connection: Connection, session: Session) -> None:
    """Give the events that came before their session to it."""
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
