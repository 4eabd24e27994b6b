"""Where imported rows end: in the store, or, for a rehearsal, nowhere. Both give the same answers."""

from collections.abc import Collection, Mapping
from typing import Any, Final, Protocol

from sqlalchemy import ColumnElement, Connection, Table, bindparam, case, or_, update

from app.caller import Caller
from app.clock import new_id, now_ms
from app.legacy.shapes import LegacyMemory
from app.services.audit import entries
from app.services.memories import context_text, memories
from app.services.memories.memories import NewMemory
from app.services.projects import projects as project_service
from app.services.projects import sessions
from app.services.projects.sessions import Start
from app.services.shared import platforms
from app.store.models import memory_items, memory_sources, projects, server_sessions
from app.store.prepared import Prepared, inserting
from app.store.scope import owned, owned_template, parameters

Found = tuple[str, bool]
"""An id, and whether it is new."""

_INSERT_SOURCE: Final = inserting(memory_sources)
_SOURCE_TYPES: Final = {
    "observation": "observation",
    "summary": "session_summary",
    "prompt": "user_prompt",
    "manual": "manual",
}
_SAME_CONTENT: Final = Prepared(
    owned_template(memory_items, memory_items.c.id).where(
        memory_items.c.project_id == bindparam("project_id"),
        memory_items.c.dedup_scope == bindparam("dedup_scope"),
        memory_items.c.kind == bindparam("kind"),
        memory_items.c.content_hash == bindparam("content_hash"),
    ),
    str,
)


class Target(Protocol):
    """What an import needs of the place it fills. Every call belongs to the transaction of its connection."""

    def project(self, connection: Connection, wanted: str) -> Found:
        """Return the project of this name, slug or id, made when absent."""

    def session(self, connection: Connection, begun: Start, ended_at_epoch: int | None) -> Found:
        """Return the session that its ids name, made when absent."""

    def memory(self, connection: Connection, new: NewMemory, entry: LegacyMemory, origin: str) -> bool:
        """Store a memory with its source; say whether it is new. Invalid when nothing in it could be searched for."""

    def record(self, connection: Connection, created: Mapping[str, int]) -> None:
        """Finish a batch; write into the audit log how many memories each project got."""


class Store:
    """The real place."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._sessions: set[str] = set()

    def project(self, connection: Connection, wanted: str) -> Found:
        """Return the project of this name, slug or id, made when absent."""
        standing = _standing_project(connection, self._caller, wanted)
        if standing is not None:
            return standing, False
        return project_service.create(connection, self._caller, name=wanted).id, True

    def session(self, connection: Connection, begun: Start, ended_at_epoch: int | None) -> Found:
        """Return the session that its ids name, made when absent and completed where it knew less."""
        session, is_new = sessions.start(connection, self._caller, begun)
        if ended_at_epoch is not None and session.ended_at_epoch is None:
            this = server_sessions.c.id == session.id
            connection.execute(update(server_sessions).where(this).values(ended_at_epoch=ended_at_epoch))
        return session.id, is_new

    def memory(self, connection: Connection, new: NewMemory, entry: LegacyMemory, origin: str) -> bool:
        """Store a memory and where it came from; equal content that stands already gets the further source."""
        memory, is_new = memories.insert_once(connection, self._caller, new)
        if is_new and memory.server_session_id is not None:
            self._sessions.add(memory.server_session_id)
        source: dict[str, Any] = {
            "id": new_id(),
            "team_id": memory.team_id,
            "project_id": memory.project_id,
            "memory_item_id": memory.id,
            "source_type": _SOURCE_TYPES[entry.kind],
            "origin": origin,
            "legacy_table": entry.legacy_table,
            "legacy_id": str(entry.legacy_id),
            "uri": None,
            "metadata": {},
            "created_at_epoch": now_ms(),
        }
        _INSERT_SOURCE.run(connection, source)
        return is_new

    def record(self, connection: Connection, created: Mapping[str, int]) -> None:
        """Write one audit entry for each project, and lend the new memories to their neighbours."""
        while self._sessions:
            context_text.refresh_session(connection, self._sessions.pop())
        for project_id, count in created.items():
            target = ("project", project_id)
            entries.record(connection, self._caller, "memory.import", target=target, project_id=project_id, count=count)


class Rehearsal:
    """Answers as the store would, and remembers instead of writing."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._seen: set[tuple[str, ...]] = set()

    def project(self, connection: Connection, wanted: str) -> Found:
        """Return the standing project, else a stand-in for the one that would be made."""
        return self._first_time(_standing_project(connection, self._caller, wanted), ("project", wanted))

    def session(self, connection: Connection, begun: Start, ended_at_epoch: int | None) -> Found:
        """Return the standing session, else a stand-in for the one that would be made."""
        platform = platforms.normalise(begun.platform_source)
        named = begun.content_session_id or begun.external_session_id or ""
        standing = _standing_session(connection, self._caller, begun, platform)
        return self._first_time(standing, ("session", begun.project_id, platform, named))

    def memory(self, connection: Connection, new: NewMemory, entry: LegacyMemory, origin: str) -> bool:
        """Say whether the store would make a new row."""
        identity = {
            "project_id": new.project_id,
            "dedup_scope": new.server_session_id or "",
            "kind": new.kind,
            "content_hash": memories.content_hash(
                [new.title, new.subtitle, new.text, new.narrative, new.facts, new.concepts]
            ),
        }
        standing = _SAME_CONTENT.first(connection, {**parameters(self._caller), **identity})
        return self._first_time(standing, ("memory", *identity.values()))[1]

    def record(self, connection: Connection, created: Mapping[str, int]) -> None:
        """Leave no trace."""

    def _first_time(self, standing: str | None, key: tuple[str, ...]) -> Found:
        if standing is not None:
            return standing, False
        is_new = key not in self._seen
        self._seen.add(key)
        return "\x1f".join(key), is_new  # a stand-in is asked for like an id, and PostgreSQL takes no NUL


def known_ids(
    connection: Connection, caller: Caller, *, project_id: str, origin: str, table: str, legacy_ids: Collection[str]
) -> set[str]:
    """Return those of the legacy ids that the project has from this origin already."""
    sources = memory_sources.c
    statement = owned(memory_sources, caller, sources.legacy_id).where(
        sources.project_id == project_id,
        sources.origin == origin,
        sources.legacy_table == table,
        sources.legacy_id.in_(legacy_ids),
    )
    return set(connection.scalars(statement))


def _standing_project(connection: Connection, caller: Caller, wanted: str) -> str | None:
    """Find a project by name, slug or id, in this order of preference; of equal names the oldest."""
    best_first = case((projects.c.name == wanted, 0), (projects.c.slug == wanted, 1), else_=2)
    matching = or_(projects.c.name == wanted, projects.c.slug == wanted, projects.c.id == wanted)
    return _first_id(connection, caller, projects, matching, best_first, projects.c.created_at_epoch, projects.c.id)


def _standing_session(connection: Connection, caller: Caller, begun: Start, platform: str) -> str | None:
    here = (server_sessions.c.project_id == begun.project_id) & (server_sessions.c.platform_source == platform)
    if begun.external_session_id is not None:
        named = server_sessions.c.external_session_id == begun.external_session_id
    else:
        named = server_sessions.c.content_session_id == begun.content_session_id
    newest = (server_sessions.c.started_at_epoch.desc(), server_sessions.c.id.desc())
    return _first_id(connection, caller, server_sessions, here & named, *newest)


def _first_id(
    connection: Connection, caller: Caller, table: Table, where: ColumnElement[bool], *order: ColumnElement[object]
) -> str | None:
    found: str | None = connection.scalar(owned(table, caller, table.c.id).where(where).order_by(*order).limit(1))
    return found
