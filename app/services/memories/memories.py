"""Memories: add, read, change, remove. Everything derived from a row is updated in the same transaction.

Triggers update the full text index, the outbox of the vector index and the project's statistics.
"""

import hashlib
import unicodedata
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

import msgspec
from sqlalchemy import Connection, bindparam, delete
from sqlalchemy.exc import IntegrityError

from app.caller import MEMORIES_WRITE, Caller
from app.clock import new_id, now_ms
from app.errors import Conflict, Invalid, NotFound, PreconditionFailed
from app.retrieval import text as search_words
from app.services.audit import entries
from app.services.memories import context_text
from app.services.projects import projects, sessions
from app.services.shared import platforms
from app.store.engines import is_duplicate_row
from app.store.models import memory_items, memory_sources
from app.store.prepared import PreparedStatement, prepare_insert, prepare_update
from app.store.records import Memory, Source, columns
from app.store.scope import owned, owned_template, parameters

COLUMNS: Final = columns(memory_items, Memory)
_INSERT: Final = prepare_insert(memory_items, "seq")
_FIXED: Final = ("seq", "id", "team_id", "project_id")
_UPDATE: Final = prepare_update(memory_items, memory_items.c.seq == bindparam("existing_seq"), *_FIXED)
_BY_ID: Final = PreparedStatement(
    owned_template(memory_items, *COLUMNS).where(memory_items.c.id == bindparam("id")), Memory
)
_SAME: Final = PreparedStatement(
    owned_template(memory_items, *COLUMNS).where(
        memory_items.c.project_id == bindparam("project_id"),
        memory_items.c.dedup_scope == bindparam("dedup_scope"),
        memory_items.c.kind == bindparam("kind"),
        memory_items.c.content_hash == bindparam("content_hash"),
    ),
    Memory,
)

_SEARCHABLE: Final = ("title", "subtitle", "text", "narrative", "facts", "concepts")
Precondition = Callable[[Memory], bool]


class NewMemory(msgspec.Struct, frozen=True, kw_only=True):
    """A memory to store; its `kind` and `type` have already been determined."""

    project_id: str
    kind: str
    type: str
    server_session_id: str | None = None
    legacy_observation_id: int | None = None
    title: str | None = None
    subtitle: str | None = None
    text: str | None = None
    narrative: str | None = None
    facts: Sequence[str] = ()
    concepts: Sequence[str] = ()
    files_read: Sequence[str] = ()
    files_modified: Sequence[str] = ()
    metadata: dict[str, Any] = {}
    platform_source: str | None = None
    pinned: bool = False
    superseded_by: str | None = None
    created_at_epoch: int | None = None


class StoredMemory(NamedTuple):
    """A memory in the database. `created` is False if the same content had been stored before."""

    memory: Memory
    created: bool


def locks_for_insert(session_id: str | None) -> tuple[str, ...]:
    """Return the names of the advisory locks that add() needs for a memory of this session."""
    # Serialise writes to one session: each insert also updates its neighbours' context text.
    return () if session_id is None else (f"session {session_id}",)


def add(connection: Connection, caller: Caller, new: NewMemory) -> StoredMemory:
    """Store a memory, or return the one with the same content in the same project, session and kind.

    Raises Invalid when it has no searchable text, Forbidden for a project outside the caller's scope, NotFound for a
    session or superseding memory outside of it.
    """
    return _add(connection, caller, new, _memory(caller, new))


def add_batch(connection: Connection, caller: Caller, batch: Sequence[NewMemory]) -> list[Memory]:
    """Store memories, all or none, in input order; repeated content resolves to one row. Raises what add() raises."""
    rows = [_memory(caller, new, f"body[{index}]") for index, new in enumerate(batch)]
    return [_add(connection, caller, new, memory).memory for new, memory in zip(batch, rows, strict=True)]


def insert_once(connection: Connection, caller: Caller, new: NewMemory) -> StoredMemory:
    """Insert a memory unless the same content exists in the same project, session and kind.

    For imports: they check the references, write the audit entry and refresh the context text of whole sessions.
    """
    return _insert_once(connection, caller, _memory(caller, new))


def restore_once(connection: Connection, caller: Caller, memory: Memory) -> StoredMemory:
    """Insert an exported row unchanged, unless the same content exists. The caller has checked its references."""
    _require_searchable(memory, "memory")
    return _insert_once(connection, caller, msgspec.structs.replace(memory, content_hash=_hash(memory)))


def get(connection: Connection, caller: Caller, memory_id: str) -> Memory:
    """Return a memory in the caller's scope; NotFound otherwise."""
    memory = _BY_ID.first(connection, {**parameters(caller), "id": memory_id})
    if memory is None:
        raise NotFound("memory")
    return memory


def by_ids(connection: Connection, caller: Caller, memory_ids: Sequence[str]) -> list[Memory]:
    """Return the memories with these ids that are in the caller's scope, in the order of the ids."""
    # one query each: with a list of ids, SQLite scans all memories of the team
    rows = (_BY_ID.first(connection, {**parameters(caller), "id": memory_id}) for memory_id in memory_ids)
    return [memory for memory in rows if memory is not None]


def sources(connection: Connection, caller: Caller, memory_id: str) -> list[Source]:
    """Return the sources of a memory, oldest first; NotFound when it is outside the caller's scope."""
    get(connection, caller, memory_id)
    statement = owned(memory_sources, caller, *columns(memory_sources, Source))
    statement = statement.where(memory_sources.c.memory_item_id == memory_id)
    rows = connection.execute(statement.order_by(memory_sources.c.created_at_epoch, memory_sources.c.id))
    return [Source(*row) for row in rows]


def change(
    connection: Connection, caller: Caller, memory_id: str, changes: dict[str, Any], *, precondition: Precondition
) -> Memory:
    """Update the fields in `changes`, keep the others.

    Raises PreconditionFailed when `precondition` rejects the row, and Invalid when no searchable text would remain. The
    database detects, at COMMIT at the latest, that the row would equal another one: see conflict_if_duplicate().
    """
    caller.require(MEMORIES_WRITE)
    existing = get(connection, caller, memory_id)
    _check_precondition(existing, precondition)
    _check_references(connection, caller, existing, changes)
    changed = _revised(existing, changes)
    if changed is existing:
        return existing
    _UPDATE.run(connection, {**_row(changed), "existing_seq": existing.seq})
    for memory in (existing, changed):
        context_text.refresh_around(connection, memory)
    _record(connection, caller, "memory.update", changed)
    return changed


@contextmanager
def conflict_if_duplicate() -> Iterator[None]:
    """Raise Conflict when the transaction inside fails because a memory would duplicate another one."""
    try:
        yield
    except IntegrityError as cause:
        if not is_duplicate_row(cause.orig):
            raise
        raise Conflict("Another memory of the same project, session and kind already has this content.") from cause


def remove(connection: Connection, caller: Caller, memory_id: str, *, precondition: Precondition) -> None:
    """Delete a memory; no route returns it any more. Raises PreconditionFailed when `precondition` rejects it."""
    caller.require(MEMORIES_WRITE)
    existing = get(connection, caller, memory_id)
    _check_precondition(existing, precondition)
    connection.execute(delete(memory_items).where(memory_items.c.seq == existing.seq))
    context_text.refresh_around(connection, existing)
    _record(connection, caller, "memory.delete", existing)


def content_hash(fields: Sequence[str | Sequence[Any] | None]) -> str:
    """Return SHA-256 over length-delimited, NFC-normalised fields.

    ("ab", "c") and ("a", "bc") differ, NFC and NFD forms do not. None, "" and an empty list are equal.
    """
    digest = hashlib.sha256()
    for field in fields:
        parts = [field] if isinstance(field, str) else list(field or [])
        parts = [part for part in parts if part != ""]
        digest.update(f"{len(parts)}:".encode())
        for part in parts:
            normal = unicodedata.normalize("NFC", part if isinstance(part, str) else msgspec.json.encode(part).decode())
            encoded = normal.encode()
            digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()


def _add(connection: Connection, caller: Caller, new: NewMemory, memory: Memory) -> StoredMemory:
    caller.require(MEMORIES_WRITE)
    projects.require(connection, caller, memory.project_id)
    if memory.server_session_id is not None:
        sessions.require_of_project(connection, caller, memory.server_session_id, memory.project_id)
    if memory.superseded_by is not None:
        _require_replacement(connection, caller, memory.superseded_by, memory.project_id)
    stored = _insert_once(connection, caller, _created_now(memory) if new.created_at_epoch is None else memory)
    if stored.created:
        if stored.memory.server_session_id is not None:
            context_text.refresh_around(connection, get(connection, caller, stored.memory.id))
        _record(connection, caller, "memory.create", stored.memory)
    return stored


def _created_now(memory: Memory) -> Memory:
    """Return it with the current time: it may have waited for a lock, and lists are ordered by creation time."""
    now = now_ms()
    return msgspec.structs.replace(memory, created_at_epoch=now, updated_at_epoch=now)


def _insert_once(connection: Connection, caller: Caller, memory: Memory) -> StoredMemory:
    existing = _SAME.first(connection, {**parameters(caller), **_identity(memory)})
    if existing is not None:
        return StoredMemory(existing, created=False)
    _INSERT.run(connection, _row(memory))
    return StoredMemory(memory, created=True)


def _memory(caller: Caller, new: NewMemory, path: str = "body") -> Memory:
    now = now_ms()
    memory = Memory(
        seq=0,
        id=new_id(),
        team_id=caller.team_id or "",
        project_id=new.project_id,
        server_session_id=new.server_session_id,
        dedup_scope=new.server_session_id or "",
        version=1,
        created_by=caller.key_id,
        pinned=new.pinned,
        superseded_by=new.superseded_by,
        legacy_observation_id=new.legacy_observation_id,
        kind=new.kind,
        type=new.type,
        title=new.title,
        subtitle=new.subtitle,
        text=new.text,
        narrative=new.narrative,
        facts=list(new.facts),
        concepts=list(new.concepts),
        files_read=list(new.files_read),
        files_modified=list(new.files_modified),
        metadata=new.metadata,
        platform_source=platforms.normalise(new.platform_source),
        content_hash="",
        created_at_epoch=now if new.created_at_epoch is None else new.created_at_epoch,
        updated_at_epoch=now,
    )
    _require_searchable(memory, path)
    return msgspec.structs.replace(memory, content_hash=_hash(memory))


def _revised(existing: Memory, changes: dict[str, Any]) -> Memory:
    """Return the row with its changes, or the existing row itself when they change nothing."""
    if "platform_source" in changes:
        changes = {**changes, "platform_source": platforms.normalise(changes["platform_source"])}
    if changes.get("type", "") is None:
        changes = {**changes, "type": changes.get("kind", existing.kind)}
    changed = msgspec.structs.replace(existing, **changes)
    if changed == existing:
        return existing
    _require_searchable(changed, "body")
    scope = (changed.server_session_id or "") if "server_session_id" in changes else existing.dedup_scope
    return msgspec.structs.replace(
        changed,
        dedup_scope=scope,
        content_hash=_hash(changed),
        version=existing.version + 1,
        updated_at_epoch=max(now_ms(), existing.updated_at_epoch),
    )


def _check_references(connection: Connection, caller: Caller, existing: Memory, changes: dict[str, Any]) -> None:
    if (session_id := changes.get("server_session_id")) is not None:
        sessions.require_of_project(connection, caller, session_id, existing.project_id)
    if (replacement_id := changes.get("superseded_by")) is not None:
        if replacement_id == existing.id:
            raise Invalid.field("body.supersededBy", "a memory cannot supersede itself")
        _require_replacement(connection, caller, replacement_id, existing.project_id)


def _require_replacement(connection: Connection, caller: Caller, memory_id: str, project_id: str) -> None:
    if get(connection, caller, memory_id).project_id != project_id:
        raise NotFound("memory")


def _check_precondition(existing: Memory, precondition: Precondition) -> None:
    if not precondition(existing):
        raise PreconditionFailed("The memory has been changed in the meantime; read it again.")


def _require_searchable(memory: Memory, path: str) -> None:
    for name in _SEARCHABLE:
        value = getattr(memory, name)
        parts = [value] if isinstance(value, str) else value or []
        if any(isinstance(part, str) and part.strip() for part in parts):
            return
    raise Invalid.field(path, f"at least one of {', '.join(_SEARCHABLE)} must contain text")


def _hash(memory: Memory) -> str:
    return content_hash([getattr(memory, name) for name in _SEARCHABLE])


def _identity(memory: Memory) -> dict[str, str]:
    return {
        "project_id": memory.project_id,
        "dedup_scope": memory.dedup_scope,
        "kind": memory.kind,
        "content_hash": memory.content_hash,
    }


def _row(memory: Memory) -> dict[str, Any]:
    """Return the values to store, with additional search terms that the full text index would not derive itself."""
    values = msgspec.structs.asdict(memory)
    del values["seq"]
    texts = [memory.title, memory.subtitle, memory.text, memory.narrative, *memory.facts, *memory.concepts]
    values["search_text"] = search_words.index_text(part for part in texts if part is None or isinstance(part, str))
    values["neighbour_text"] = None
    return values


def _record(connection: Connection, caller: Caller, action: str, memory: Memory) -> None:
    entries.record(connection, caller, action, target=("memory", memory.id), project_id=memory.project_id)
