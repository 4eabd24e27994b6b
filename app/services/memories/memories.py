"""Memories: add, read, change, remove. What depends on a row goes with it in the same transaction.

Full text, the outbox of the vector mirror and the project's statistics follow by triggers.
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
_UPDATE: Final = prepare_update(memory_items, memory_items.c.seq == bindparam("standing_seq"), *_FIXED)
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
    """A memory as its writer describes it; `kind` and `type` are already decided."""

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


def insert_locks(session_id: str | None) -> tuple[str, ...]:
    """Return the names of the advisory locks that add() needs for a memory of this session."""
    # Serialise writes to one session: each insert also updates its neighbours' context text.
    return () if session_id is None else (f"session {session_id}",)


def add(connection: Connection, caller: Caller, new: NewMemory) -> StoredMemory:
    """Store a memory, or return the one with the same content in the same project, session and kind.

    Raises Invalid when nothing in it could be searched for, Forbidden for a project out of reach, NotFound for a
    session or superseding memory out of reach.
    """
    return _add(connection, caller, new, _composed(caller, new))


def add_batch(connection: Connection, caller: Caller, batch: Sequence[NewMemory]) -> list[Memory]:
    """Store memories, all or none, in input order; repeats resolve to one row."""
    composed = [_composed(caller, new, f"body[{place}]") for place, new in enumerate(batch)]
    return [_add(connection, caller, new, memory).memory for new, memory in zip(batch, composed, strict=True)]


def insert_once(connection: Connection, caller: Caller, new: NewMemory) -> StoredMemory:
    """Write the row unless the same content stands in the same project, session and kind.

    The references of `new` have been checked: this is for imports, which audit themselves and lend in whole sessions.
    """
    return _insert_once(connection, caller, _composed(caller, new))


def restore_once(connection: Connection, caller: Caller, memory: Memory) -> StoredMemory:
    """Write a row as it was taken out, unless the same content stands. Its references have been checked."""
    _require_searchable(memory, "memory")
    return _insert_once(connection, caller, msgspec.structs.replace(memory, content_hash=_hash(memory)))


def get(connection: Connection, caller: Caller, memory_id: str) -> Memory:
    """Return a memory that the caller reaches; NotFound otherwise."""
    memory = _BY_ID.first(connection, {**parameters(caller), "id": memory_id})
    if memory is None:
        raise NotFound("memory")
    return memory


def by_ids(connection: Connection, caller: Caller, memory_ids: Sequence[str]) -> list[Memory]:
    """Return those of the named memories that the caller reaches, in the order of the names."""
    # one by one: asked for many at once, SQLite walks the whole team instead
    found = (_BY_ID.first(connection, {**parameters(caller), "id": memory_id}) for memory_id in memory_ids)
    return [memory for memory in found if memory is not None]


def sources(connection: Connection, caller: Caller, memory_id: str) -> list[Source]:
    """Return where a memory came from, oldest first."""
    get(connection, caller, memory_id)
    statement = owned(memory_sources, caller, *columns(memory_sources, Source))
    statement = statement.where(memory_sources.c.memory_item_id == memory_id)
    rows = connection.execute(statement.order_by(memory_sources.c.created_at_epoch, memory_sources.c.id))
    return [Source(*row) for row in rows]


def change(
    connection: Connection, caller: Caller, memory_id: str, changes: dict[str, Any], *, precondition: Precondition
) -> Memory:
    """Set the fields in `changes`, leave the others; raise PreconditionFailed when `precondition` refuses the row.

    Invalid when nothing would be left to search for. That the row would equal another one, the database finds out, with
    COMMIT at the latest: see equals_refused().
    """
    caller.require(MEMORIES_WRITE)
    standing = get(connection, caller, memory_id)
    _check_precondition(standing, precondition)
    _check_references(connection, caller, standing, changes)
    changed = _revised(standing, changes)
    if changed is standing:
        return standing
    _UPDATE.run(connection, {**_stored(changed), "standing_seq": standing.seq})
    for place in (standing, changed):
        context_text.refresh_around(connection, place)
    _record(connection, caller, "memory.update", changed)
    return changed


@contextmanager
def conflict_if_duplicate() -> Iterator[None]:
    """Raise Conflict when the transaction within would have made a memory equal to another one."""
    try:
        yield
    except IntegrityError as cause:
        if not is_duplicate_row(cause.orig):
            raise
        raise Conflict("Another memory of this project, session and kind has this content already.") from cause


def remove(connection: Connection, caller: Caller, memory_id: str, *, precondition: Precondition) -> None:
    """Delete a memory: no route returns it from then on."""
    caller.require(MEMORIES_WRITE)
    standing = get(connection, caller, memory_id)
    _check_precondition(standing, precondition)
    connection.execute(delete(memory_items).where(memory_items.c.seq == standing.seq))
    context_text.refresh_around(connection, standing)
    _record(connection, caller, "memory.delete", standing)


def content_hash(fields: Sequence[str | Sequence[Any] | None]) -> str:
    """Return SHA-256 over length-delimited, NFC-normalised fields.

    ("ab", "c") and ("a", "bc") differ, NFC and NFD do not. None, "" and an empty list are the same: nothing.
    """
    digest = hashlib.sha256()
    for field in fields:
        parts = [field] if isinstance(field, str) else list(field or [])
        parts = [part for part in parts if part != ""]
        digest.update(f"{len(parts)}:".encode())
        for part in parts:
            plain = unicodedata.normalize("NFC", part if isinstance(part, str) else msgspec.json.encode(part).decode())
            encoded = plain.encode()
            digest.update(f"{len(encoded)}:".encode() + encoded)
    return digest.hexdigest()


def _add(connection: Connection, caller: Caller, new: NewMemory, memory: Memory) -> StoredMemory:
    caller.require(MEMORIES_WRITE)
    projects.require(connection, caller, memory.project_id)
    if memory.server_session_id is not None:
        sessions.require_of_project(connection, caller, memory.server_session_id, memory.project_id)
    if memory.superseded_by is not None:
        _require_replacement(connection, caller, memory.superseded_by, memory.project_id)
    stored = _insert_once(connection, caller, _as_of_now(memory) if new.created_at_epoch is None else memory)
    if stored.created:
        if stored.memory.server_session_id is not None:
            context_text.refresh_around(connection, get(connection, caller, stored.memory.id))
        _record(connection, caller, "memory.create", stored.memory)
    return stored


def _as_of_now(memory: Memory) -> Memory:
    """Return it as made now: it may have waited for somebody's turn, and lists are in the order of this time."""
    now = now_ms()
    return msgspec.structs.replace(memory, created_at_epoch=now, updated_at_epoch=now)


def _insert_once(connection: Connection, caller: Caller, memory: Memory) -> StoredMemory:
    standing = _SAME.first(connection, {**parameters(caller), **_identity(memory)})
    if standing is not None:
        return StoredMemory(standing, created=False)
    _INSERT.run(connection, _stored(memory))
    return StoredMemory(memory, created=True)


def _composed(caller: Caller, new: NewMemory, path: str = "body") -> Memory:
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


def _revised(standing: Memory, changes: dict[str, Any]) -> Memory:
    """Return the row with its changes, and the standing one itself when they change nothing."""
    if "platform_source" in changes:
        changes = {**changes, "platform_source": platforms.normalise(changes["platform_source"])}
    if changes.get("type", "") is None:
        changes = {**changes, "type": changes.get("kind", standing.kind)}
    changed = msgspec.structs.replace(standing, **changes)
    if changed == standing:
        return standing
    _require_searchable(changed, "body")
    scope = (changed.server_session_id or "") if "server_session_id" in changes else standing.dedup_scope
    return msgspec.structs.replace(
        changed,
        dedup_scope=scope,
        content_hash=_hash(changed),
        version=standing.version + 1,
        updated_at_epoch=max(now_ms(), standing.updated_at_epoch),
    )


def _check_references(connection: Connection, caller: Caller, standing: Memory, changes: dict[str, Any]) -> None:
    if (session_id := changes.get("server_session_id")) is not None:
        sessions.require_of_project(connection, caller, session_id, standing.project_id)
    if (replacement_id := changes.get("superseded_by")) is not None:
        if replacement_id == standing.id:
            raise Invalid.field("body.supersededBy", "a memory cannot supersede itself")
        _require_replacement(connection, caller, replacement_id, standing.project_id)


def _require_replacement(connection: Connection, caller: Caller, memory_id: str, project_id: str) -> None:
    if get(connection, caller, memory_id).project_id != project_id:
        raise NotFound("memory")


def _check_precondition(standing: Memory, precondition: Precondition) -> None:
    if not precondition(standing):
        raise PreconditionFailed("The memory has changed since; read it again.")


def _require_searchable(memory: Memory, path: str) -> None:
    for name in _SEARCHABLE:
        value = getattr(memory, name)
        parts = [value] if isinstance(value, str) else value or []
        if any(isinstance(part, str) and part.strip() for part in parts):
            return
    raise Invalid.field(path, f"one of {', '.join(_SEARCHABLE)} must hold text")


def _hash(memory: Memory) -> str:
    return content_hash([getattr(memory, name) for name in _SEARCHABLE])


def _identity(memory: Memory) -> dict[str, str]:
    return {
        "project_id": memory.project_id,
        "dedup_scope": memory.dedup_scope,
        "kind": memory.kind,
        "content_hash": memory.content_hash,
    }


def _stored(memory: Memory) -> dict[str, Any]:
    """Return the row's values, with the words that full text would not make from the plain columns."""
    values = msgspec.structs.asdict(memory)
    del values["seq"]
    plain = [memory.title, memory.subtitle, memory.text, memory.narrative, *memory.facts, *memory.concepts]
    values["search_text"] = search_words.index_text(part for part in plain if part is None or isinstance(part, str))
    values["neighbour_text"] = None
    return values


def _record(connection: Connection, caller: Caller, action: str, memory: Memory) -> None:
    entries.record(connection, caller, action, target=("memory", memory.id), project_id=memory.project_id)
