"""Targets of an import: the database, or nothing in a dry run. Both return the same outcomes."""

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
from app.services.projects.sessions import NewSession
from app.services.shared import platforms
from app.store.models import memory_items, memory_sources, projects, server_sessions
from app.store.prepared import PreparedStatement, prepare_insert
from app.store.scope import owned, owned_template, parameters

IdAndIsNew = tuple[str, bool]
"""An id, and whether it is new."""

_INSERT_SOURCE: Final = prepare_insert(memory_sources)
_SOURCE_TYPES: Final = {
    "observation": "observation",
    "summary": "session_summary",
    "prompt": "user_prompt",
    "manual": "manual",
}
_SAME_CONTENT: Final = PreparedStatement(
    owned_template(memory_items, memory_items.c.id).where(
        memory_items.c.project_id == bindparam("project_id"),
        memory_items.c.dedup_scope == bindparam("dedup_scope"),
        memory_items.c.kind == bindparam("kind"),
        memory_items.c.content_hash == bindparam("content_hash"),
    ),
    str,
)


class ImportTarget(Protocol):
    """The contract of a target. Every call belongs to the transaction of its connection."""

    def project(self, connection: Connection, name: str) -> IdAndIsNew:
        """Return the project with this name, slug or id, created when absent."""

    def session(self, connection: Connection, new: NewSession, ended_at_epoch: int | None) -> IdAndIsNew:
        """Return the session with these ids, created when absent."""

    def memory(self, connection: Connection, new: NewMemory, entry: LegacyMemory, origin: str) -> bool:
        """Store a memory with its source; say whether it is new. Raises Invalid when it has no searchable text."""

    def finish_batch(self, connection: Connection, created: Mapping[str, int]) -> None:
        """Finish a batch: write an audit entry with the number of new memories per project."""


class DatabaseTarget:
    """Writes to the database."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._sessions: set[str] = set()

    def project(self, connection: Connection, name: str) -> IdAndIsNew:
        """Return the project with this name, slug or id, created when absent."""
        existing_id = _find_project(connection, self._caller, name)
        if existing_id is not None:
            return existing_id, False
        return project_service.create(connection, self._caller, name=name).id, True

    def session(self, connection: Connection, new: NewSession, ended_at_epoch: int | None) -> IdAndIsNew:
        """Return the session with these ids, created when absent; set its end if that was unknown."""
        session, is_new = sessions.start(connection, self._caller, new)
        if ended_at_epoch is not None and session.ended_at_epoch is None:
            this = server_sessions.c.id == session.id
            connection.execute(update(server_sessions).where(this).values(ended_at_epoch=ended_at_epoch))
        return session.id, is_new

    def memory(self, connection: Connection, new: NewMemory, entry: LegacyMemory, origin: str) -> bool:
        """Store a memory with its source; an existing memory of equal content gets the additional source."""
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

    def finish_batch(self, connection: Connection, created: Mapping[str, int]) -> None:
        """Refresh the context text of the sessions, and write one audit entry per project."""
        while self._sessions:
            context_text.refresh_session(connection, self._sessions.pop())
        for project_id, count in created.items():
            target = ("project", project_id)
            entries.record(connection, self._caller, "memory.import", target=target, project_id=project_id, count=count)


class DryRunTarget:
    """Returns what the database target would, but remembers rows instead of writing them."""

    def __init__(self, caller: Caller) -> None:
        self._caller = caller
        self._seen: set[tuple[str, ...]] = set()

    def project(self, connection: Connection, name: str) -> IdAndIsNew:
        """Return the existing project, or a placeholder id for the one that would be created."""
        return self._first_time(_find_project(connection, self._caller, name), ("project", name))

    def session(self, connection: Connection, new: NewSession, ended_at_epoch: int | None) -> IdAndIsNew:
        """Return the existing session, or a placeholder id for the one that would be created."""
        platform = platforms.normalise(new.platform_source)
        named = new.content_session_id or new.external_session_id or ""
        existing_id = _find_session(connection, self._caller, new, platform)
        return self._first_time(existing_id, ("session", new.project_id, platform, named))

    def memory(self, connection: Connection, new: NewMemory, entry: LegacyMemory, origin: str) -> bool:
        """Say whether the database target would create a row."""
        identity = {
            "project_id": new.project_id,
            "dedup_scope": new.server_session_id or "",
            "kind": new.kind,
            "content_hash": memories.content_hash(
                [new.title, new.subtitle, new.text, new.narrative, new.facts, new.concepts]
            ),
        }
        existing_id = _SAME_CONTENT.first(connection, {**parameters(self._caller), **identity})
        return self._first_time(existing_id, ("memory", *identity.values()))[1]

    def finish_batch(self, connection: Connection, created: Mapping[str, int]) -> None:
        """Write nothing."""

    def _first_time(self, existing_id: str | None, key: tuple[str, ...]) -> IdAndIsNew:
        if existing_id is not None:
            return existing_id, False
        is_new = key not in self._seen
        self._seen.add(key)
        return "\x1f".join(key), is_new  # queried like a real id, and PostgreSQL accepts no NUL


def known_ids(
    connection: Connection, caller: Caller, *, project_id: str, origin: str, table: str, legacy_ids: Collection[str]
) -> set[str]:
    """Return the legacy ids that the project already has from this origin."""
    sources = memory_sources.c
    statement = owned(memory_sources, caller, sources.legacy_id).where(
        sources.project_id == project_id,
        sources.origin == origin,
        sources.legacy_table == table,
        sources.legacy_id.in_(legacy_ids),
    )
    return set(connection.scalars(statement))


def _find_project(connection: Connection, caller: Caller, name: str) -> str | None:
    """Find a project by name, slug or id, in this order; the oldest one if several have the name."""
    best_first = case((projects.c.name == name, 0), (projects.c.slug == name, 1), else_=2)
    matching = or_(projects.c.name == name, projects.c.slug == name, projects.c.id == name)
    return _first_id(connection, caller, projects, matching, best_first, projects.c.created_at_epoch, projects.c.id)


def _find_session(connection: Connection, caller: Caller, new: NewSession, platform: str) -> str | None:
    here = (server_sessions.c.project_id == new.project_id) & (server_sessions.c.platform_source == platform)
    if new.external_session_id is not None:
        named = server_sessions.c.external_session_id == new.external_session_id
    else:
        named = server_sessions.c.content_session_id == new.content_session_id
    newest = (server_sessions.c.started_at_epoch.desc(), server_sessions.c.id.desc())
    return _first_id(connection, caller, server_sessions, here & named, *newest)


def _first_id(
    connection: Connection, caller: Caller, table: Table, where: ColumnElement[bool], *order: ColumnElement[object]
) -> str | None:
    found: str | None = connection.scalar(owned(table, caller, table.c.id).where(where).order_by(*order).limit(1))
    return found
