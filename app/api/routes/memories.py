"""/v1/memories: create, read, update and delete memories."""

from collections.abc import Callable
from typing import Annotated, Any, Literal

import msgspec
from litestar import Response, Router, delete, get, patch, post
from litestar.params import JSONBody
from msgspec import UNSET, Meta, UnsetType

from app.api.http.idempotency import PostResult, begin_insert, run_once
from app.api.http.parameters import IfMatch, PathId
from app.api.http.request import ApiRequest
from app.api.http.schemas import MAX_BATCH, EpochMs, Id, Label, Object, StringList, Text, Wire, extract_changes, to_view
from app.api.http.thread_pools import reading, writing
from app.caller import MEMORIES_READ, MEMORIES_WRITE
from app.errors import Invalid
from app.services.memories import memories
from app.store.records import Memory

Kind = Literal["observation", "summary", "prompt", "manual"]


class MemoryCreate(Wire, frozen=True, kw_only=True):
    """A memory to store. `content` is an alias of `narrative`. At least one of the text fields must not be blank."""

    project_id: Id
    kind: Kind = "manual"
    type: Label | None = None
    server_session_id: Id | None = None
    legacy_observation_id: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    title: Text | None = None
    subtitle: Text | None = None
    text: Text | None = None
    narrative: Text | None = None
    content: Text | None = None
    facts: StringList = msgspec.field(default_factory=list)
    concepts: StringList = msgspec.field(default_factory=list)
    files_read: StringList = msgspec.field(default_factory=list)
    files_modified: StringList = msgspec.field(default_factory=list)
    metadata: Object | None = None
    platform_source: Label | None = None
    pinned: bool = False
    superseded_by: Id | None = None
    created_at_epoch: EpochMs | None = None


class MemoryPatch(Wire, frozen=True, kw_only=True):
    """What to change: an absent key keeps its value, null clears it, and arrays and objects are replaced as a whole."""

    kind: Kind | UnsetType = UNSET
    type: Label | UnsetType | None = UNSET
    server_session_id: Id | UnsetType | None = UNSET
    legacy_observation_id: Annotated[int, Meta(ge=0, le=2**63 - 1)] | UnsetType | None = UNSET
    title: Text | UnsetType | None = UNSET
    subtitle: Text | UnsetType | None = UNSET
    text: Text | UnsetType | None = UNSET
    narrative: Text | UnsetType | None = UNSET
    content: Text | UnsetType | None = UNSET
    facts: StringList | UnsetType | None = UNSET
    concepts: StringList | UnsetType | None = UNSET
    files_read: StringList | UnsetType | None = UNSET
    files_modified: StringList | UnsetType | None = UNSET
    metadata: Object | UnsetType | None = UNSET
    platform_source: Label | UnsetType | None = UNSET
    pinned: bool | UnsetType | None = UNSET
    superseded_by: Id | UnsetType | None = UNSET


class MemoryView(Wire, frozen=True, kw_only=True):
    """A memory. `content` is the first non-empty field of narrative, text and title."""

    id: str
    team_id: str
    project_id: str
    server_session_id: str | None
    legacy_observation_id: int | None
    kind: Kind
    type: str
    title: str | None
    subtitle: str | None
    text: str | None
    narrative: str | None
    facts: list[str]
    concepts: list[str]
    files_read: list[str]
    files_modified: list[str]
    metadata: Object
    platform_source: str
    pinned: bool
    superseded_by: str | None
    content_hash: str
    created_at_epoch: int
    updated_at_epoch: int
    content: str | None


class MemoryReply(Wire, frozen=True, kw_only=True):
    """One memory."""

    memory: MemoryView


class MemoryStored(Wire, frozen=True, kw_only=True):
    """A stored memory. `deduplicated` is true if the same content had been stored before."""

    memory: MemoryView
    deduplicated: bool


class MemoryBatch(Wire, frozen=True, kw_only=True):
    """Stored memories, in input order."""

    memories: list[MemoryView]


class MemoryDeleted(Wire, frozen=True, kw_only=True):
    """The memory was deleted."""

    deleted: bool
    id: str


class SourceView(Wire, frozen=True, kw_only=True):
    """Where a memory came from."""

    id: str
    source_type: str
    origin: str
    legacy_table: str
    legacy_id: str
    uri: str | None
    metadata: Object
    created_at_epoch: int


class SourceList(Wire, frozen=True, kw_only=True):
    """All sources of a memory."""

    sources: list[SourceView]


@post("/memories", operation_id="createMemory", scope=MEMORIES_WRITE, idempotent=True, located=True, also_200=True)
@writing
def create_memory(request: ApiRequest, data: JSONBody[MemoryCreate]) -> Response[MemoryStored]:
    """Store a memory. Sending the same content again returns the existing memory with 200.

    Content is compared within one project, session and kind.
    """

    def perform() -> PostResult[MemoryStored]:
        memory, created = memories.add(connection, request.caller, _new(data, "body"))
        reply = MemoryStored(memory=_view(memory), deduplicated=not created)
        return PostResult([memory.id], 201 if created else 200, reply, {"Location": f"/v1/memories/{memory.id}"})

    def replay(ids: list[str]) -> MemoryStored:
        memory = memories.get(connection, request.caller, ids[0])
        return MemoryStored(memory=_view(memory), deduplicated=False)

    with begin_insert(request, *memories.locks_for_insert(data.server_session_id)) as connection:
        return run_once(request, connection, perform=perform, replay=replay, for_status=_with_first_status)


@post("/memories/batch", operation_id="createMemories", scope=MEMORIES_WRITE, idempotent=True)
@writing
def create_memories(
    request: ApiRequest, data: JSONBody[Annotated[list[MemoryCreate], Meta(min_length=1, max_length=MAX_BATCH)]]
) -> Response[MemoryBatch]:
    """Store up to 500 memories, all or none. The reply is in input order; duplicates resolve to the same memory."""

    def perform() -> PostResult[MemoryBatch]:
        new = [_new(item, f"body[{index}]") for index, item in enumerate(data)]
        stored = memories.add_batch(connection, request.caller, new)
        return PostResult([memory.id for memory in stored], 201, _batch(stored))

    def replay(ids: list[str]) -> MemoryBatch:
        return _batch([memories.get(connection, request.caller, memory_id) for memory_id in ids])

    with request.database.write() as connection:
        return run_once(request, connection, perform=perform, replay=replay)


@get("/memories/{memory_id:str}", operation_id="getMemory", scope=MEMORIES_READ, versioned=True)
@reading
def get_memory(request: ApiRequest, memory_id: PathId) -> Response[MemoryReply]:
    """Get a memory. The `ETag` header identifies its version."""
    with request.database.read_one() as connection:
        return _one(memories.get(connection, request.caller, memory_id))


@patch("/memories/{memory_id:str}", operation_id="updateMemory", scope=MEMORIES_WRITE, versioned=True)
@writing
def update_memory(
    request: ApiRequest, memory_id: PathId, data: JSONBody[MemoryPatch], if_match: IfMatch = None
) -> Response[MemoryReply]:
    """Update a memory. 409 if its content would equal another memory's, 412 if `If-Match` names an older version."""
    with memories.conflict_if_duplicate(), request.database.write() as connection:
        unchanged = _unless_changed(if_match)
        return _one(memories.change(connection, request.caller, memory_id, _changes(data), precondition=unchanged))


@delete("/memories/{memory_id:str}", operation_id="deleteMemory", scope=MEMORIES_WRITE, status_code=200)
@writing
def delete_memory(request: ApiRequest, memory_id: PathId, if_match: IfMatch = None) -> MemoryDeleted:
    """Delete a memory. No route returns it afterwards."""
    with request.database.write() as connection:
        memories.remove(connection, request.caller, memory_id, precondition=_unless_changed(if_match))
    return MemoryDeleted(deleted=True, id=memory_id)


@get("/memories/{memory_id:str}/sources", operation_id="listMemorySources", scope=MEMORIES_READ)
@reading
def list_sources(request: ApiRequest, memory_id: PathId) -> SourceList:
    """List the sources of a memory: where it came from."""
    with request.database.read() as connection:
        sources = memories.sources(connection, request.caller, memory_id)
    return SourceList(sources=[to_view(SourceView, source) for source in sources])


router = Router(
    "/",
    route_handlers=[
        create_memory,
        create_memories,
        get_memory,
        update_memory,
        delete_memory,
        list_sources,
    ],
    tags=["memories"],
)


def _new(item: MemoryCreate, path: str) -> memories.NewMemory:
    fields = msgspec.structs.asdict(item)
    content = fields.pop("content")
    if content is not None and item.narrative not in (None, content):
        raise Invalid.field(f"{path}.content", "is an alias of narrative, but the two values differ")
    fields["narrative"] = item.narrative if content is None else content
    fields["type"] = _type(item.type, f"{path}.type") or item.kind
    fields["metadata"] = item.metadata or {}
    return memories.NewMemory(**fields)


def _type(given: str | None, path: str) -> str | None:
    if given is not None and not given.strip():
        raise Invalid.field(path, "must not be blank")
    return given


def _changes(data: MemoryPatch) -> dict[str, Any]:
    changes = extract_changes(data, facts=[], concepts=[], files_read=[], files_modified=[], metadata={}, pinned=False)
    if "content" in changes:
        content = changes.pop("content")
        if changes.get("narrative", content) != content:
            raise Invalid.field("body.content", "is an alias of narrative, but the two values differ")
        changes["narrative"] = content
    if "type" in changes:
        changes["type"] = _type(changes["type"], "body.type")
    return changes


def _unless_changed(if_match: str | None) -> Callable[[Memory], bool]:
    """Return the precondition of an If-Match header (RFC 9110, section 13.1.1)."""
    if if_match is None or if_match.strip() == "*":
        return lambda _: True
    etags = {etag.strip() for etag in if_match.split(",")}
    return lambda memory: _etag(memory) in etags


def _etag(memory: Memory) -> str:
    return f'"{memory.version}"'


def _view(memory: Memory) -> MemoryView:
    return to_view(MemoryView, memory)


def _one(memory: Memory) -> Response[MemoryReply]:
    return Response(MemoryReply(memory=_view(memory)), headers={"ETag": _etag(memory)})


def _with_first_status(reply: MemoryStored, status: int) -> MemoryStored:
    return msgspec.structs.replace(reply, deduplicated=status == 200)


def _batch(stored: list[Memory]) -> MemoryBatch:
    return MemoryBatch(memories=[_view(memory) for memory in stored])
