"""/v1/memories: one memory, many, and lists of them."""

from collections.abc import Callable
from typing import Annotated, Any, Final, Literal, TypeVar

import msgspec
from litestar import Response, Router, delete, get, patch, post
from litestar.params import JSONBody, QueryParameter
from msgspec import UNSET, Meta, UnsetType

from app.api.http.idempotency import Done, appending, once
from app.api.http.parameters import Cursor, IfMatch, Limit, PathId, ProjectId, epoch_ms
from app.api.http.request import ApiRequest
from app.api.http.schemas import MAX_BATCH, EpochMs, Id, Label, Object, Text, Wire, Words
from app.api.http.thread_pools import reading, writing
from app.caller import MEMORIES_READ, MEMORIES_WRITE
from app.errors import Invalid
from app.services.memories import listing, memories
from app.services.shared import platforms
from app.store.fulltext import Filters
from app.store.records import Memory, Source

Kind = Literal["observation", "summary", "prompt", "manual"]


class MemoryCreate(Wire, frozen=True, kw_only=True):
    """A memory to store. `content` is another name for `narrative`; one of the texts must not be blank."""

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
    facts: Words = msgspec.field(default_factory=list)
    concepts: Words = msgspec.field(default_factory=list)
    files_read: Words = msgspec.field(default_factory=list)
    files_modified: Words = msgspec.field(default_factory=list)
    metadata: Object | None = None
    platform_source: Label | None = None
    pinned: bool = False
    superseded_by: Id | None = None
    created_at_epoch: EpochMs | None = None


class MemoryPatch(Wire, frozen=True, kw_only=True):
    """What to change: an absent key leaves the value, null clears it, arrays and objects replace the old ones."""

    kind: Kind | UnsetType = UNSET
    type: Label | UnsetType | None = UNSET
    server_session_id: Id | UnsetType | None = UNSET
    legacy_observation_id: Annotated[int, Meta(ge=0, le=2**63 - 1)] | UnsetType | None = UNSET
    title: Text | UnsetType | None = UNSET
    subtitle: Text | UnsetType | None = UNSET
    text: Text | UnsetType | None = UNSET
    narrative: Text | UnsetType | None = UNSET
    content: Text | UnsetType | None = UNSET
    facts: Words | UnsetType | None = UNSET
    concepts: Words | UnsetType | None = UNSET
    files_read: Words | UnsetType | None = UNSET
    files_modified: Words | UnsetType | None = UNSET
    metadata: Object | UnsetType | None = UNSET
    platform_source: Label | UnsetType | None = UNSET
    pinned: bool | UnsetType | None = UNSET
    superseded_by: Id | UnsetType | None = UNSET


class MemoryView(Wire, frozen=True, kw_only=True):
    """A memory. `content` is the first of narrative, text and title that is not empty."""

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
    """A stored memory; `deduplicated` when the same content stood already."""

    memory: MemoryView
    deduplicated: bool


class MemoryBatch(Wire, frozen=True, kw_only=True):
    """Stored memories in input order."""

    memories: list[MemoryView]


class MemoryPage(Wire, frozen=True, kw_only=True):
    """A page of memories."""

    memories: list[MemoryView]
    next_cursor: str | None


class MemoryDeleted(Wire, frozen=True, kw_only=True):
    """The memory is gone."""

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
    """Every source of a memory."""

    sources: list[SourceView]


View = TypeVar("View", bound=MemoryView)


def memory_view(memory: Memory, view: type[View], **more: Any) -> View:
    """Return a memory as it travels, with what a reply says of it besides."""
    return view(**{name: getattr(memory, name) for name in MemoryView.__struct_fields__}, **more)


def _view(memory: Memory) -> MemoryView:
    return memory_view(memory, MemoryView)


@post("/memories", operation_id="createMemory", scope=MEMORIES_WRITE, idempotent=True, located=True, also_200=True)
@writing
def create_memory(request: ApiRequest, data: JSONBody[MemoryCreate]) -> Response[MemoryStored]:
    """Store a memory. The same content again in the same project, session and kind is the standing row, with 200."""

    def act() -> Done[MemoryStored]:
        memory, is_new = memories.add(connection, request.caller, _new(data, "body"))
        stored = MemoryStored(memory=_view(memory), deduplicated=not is_new)
        return Done([memory.id], 201 if is_new else 200, stored, {"Location": f"/v1/memories/{memory.id}"})

    def recall(ids: list[str]) -> MemoryStored:
        memory = memories.get(connection, request.caller, ids[0])
        return MemoryStored(memory=_view(memory), deduplicated=False)

    # what is lent to neighbours follows from all of a session
    session = () if data.server_session_id is None else (f"session {data.server_session_id}",)
    with appending(request, *session) as connection:
        return once(request, connection, act=act, recall=recall, as_with=_as_with)


@post("/memories/batch", operation_id="createMemories", scope=MEMORIES_WRITE, idempotent=True)
@writing
def create_memories(
    request: ApiRequest, data: JSONBody[Annotated[list[MemoryCreate], Meta(min_length=1, max_length=MAX_BATCH)]]
) -> Response[MemoryBatch]:
    """Store up to 500 memories, all or none; the reply is in input order, repeats are one row."""

    def act() -> Done[MemoryBatch]:
        new = [_new(item, f"body[{place}]") for place, item in enumerate(data)]
        stored = memories.add_batch(connection, request.caller, new)
        return Done([memory.id for memory in stored], 201, _batch(stored))

    def recall(ids: list[str]) -> MemoryBatch:
        return _batch([memories.get(connection, request.caller, memory_id) for memory_id in ids])

    with request.database.write() as connection:
        return once(request, connection, act=act, recall=recall)


@get("/memories", operation_id="listMemories", scope=MEMORIES_READ)
@reading
def list_memories(
    request: ApiRequest,
    project_id: ProjectId = None,
    kinds: Annotated[list[Kind] | None, QueryParameter(name="kinds", description="Any of these kinds.")] = None,
    types: Annotated[list[str] | None, QueryParameter(name="types", description="Any of these types.")] = None,
    concepts: Annotated[list[str] | None, QueryParameter(name="concepts", description="Any of these.")] = None,
    files: Annotated[list[str] | None, QueryParameter(name="files", description="Paths or folders.")] = None,
    platform_source: Annotated[str | None, QueryParameter(name="platformSource")] = None,
    server_session_id: Annotated[str | None, QueryParameter(name="serverSessionId")] = None,
    created_after: Annotated[
        str | None, QueryParameter(name="createdAfter", description="Epoch ms or RFC 3339, inclusive.")
    ] = None,
    created_before: Annotated[
        str | None, QueryParameter(name="createdBefore", description="Epoch ms or RFC 3339, exclusive.")
    ] = None,
    order_by: Annotated[Literal["newest", "oldest"], QueryParameter(name="orderBy")] = "newest",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> MemoryPage:
    """List memories by time, newest first, with the filters of search."""
    filters = Filters(
        kinds=tuple(kinds or ()),
        types=tuple(types or ()),
        concepts=tuple(concepts or ()),
        files=tuple(files or ()),
        platform_source=None if platform_source is None else platforms.normalise(platform_source),
        server_session_id=server_session_id,
        created_after=epoch_ms("createdAfter", created_after),
        created_before=epoch_ms("createdBefore", created_before),
    )
    with request.database.read() as connection:
        found = listing.page(
            connection,
            request.caller,
            _named(project_id),
            filters,
            limit=limit,
            cursor=cursor,
            oldest_first=order_by == "oldest",
        )
    return _page(found)


@get("/memories/by-file", operation_id="listMemoriesByFile", scope=MEMORIES_READ)
@reading
def list_memories_by_file(
    request: ApiRequest,
    path: Annotated[list[str], QueryParameter(name="path", description="Repeat it for several paths.")],
    project_id: ProjectId = None,
    is_folder: Annotated[
        bool | None,
        QueryParameter(
            name="isFolder",
            description="true: the folder and what lies below it, as when left out; false: the very file.",
        ),
    ] = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> MemoryPage:
    """List what is known of files or folders: memories that read or modified them, newest first."""
    if not all(each.strip() for each in path):
        raise Invalid.field("query.path", "must not be blank")
    filters = Filters(files=tuple(path), files_exact=is_folder is False)
    with request.database.read() as connection:
        found = listing.page(connection, request.caller, _named(project_id), filters, limit=limit, cursor=cursor)
    return _page(found)


@get("/memories/{memory_id:str}", operation_id="getMemory", scope=MEMORIES_READ, versioned=True)
@reading
def get_memory(request: ApiRequest, memory_id: PathId) -> Response[MemoryReply]:
    """Read a memory; `ETag` names its version."""
    with request.database.glance() as connection:
        return _one(memories.get(connection, request.caller, memory_id))


@patch("/memories/{memory_id:str}", operation_id="updateMemory", scope=MEMORIES_WRITE, versioned=True)
@writing
def update_memory(
    request: ApiRequest, memory_id: PathId, data: JSONBody[MemoryPatch], if_match: IfMatch = None
) -> Response[MemoryReply]:
    """Change a memory. 409 when it would equal another one, 412 when `If-Match` names an older version."""
    with memories.equals_refused(), request.database.write() as connection:
        unchanged = _unless_changed(if_match)
        return _one(memories.change(connection, request.caller, memory_id, _changes(data), precondition=unchanged))


@delete("/memories/{memory_id:str}", operation_id="deleteMemory", scope=MEMORIES_WRITE, status_code=200)
@writing
def delete_memory(request: ApiRequest, memory_id: PathId, if_match: IfMatch = None) -> MemoryDeleted:
    """Delete a memory: no route returns it from then on."""
    with request.database.write() as connection:
        memories.remove(connection, request.caller, memory_id, precondition=_unless_changed(if_match))
    return MemoryDeleted(deleted=True, id=memory_id)


@get("/memories/{memory_id:str}/sources", operation_id="listMemorySources", scope=MEMORIES_READ)
@reading
def list_sources(request: ApiRequest, memory_id: PathId) -> SourceList:
    """List where a memory came from."""
    with request.database.read() as connection:
        found = memories.sources(connection, request.caller, memory_id)
    return SourceList(sources=[_source(source) for source in found])


router = Router(
    "/",
    route_handlers=[
        create_memory,
        create_memories,
        list_memories,
        list_memories_by_file,
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
        raise Invalid.field(f"{path}.content", "is another name for narrative; the two differ")
    fields["narrative"] = item.narrative if content is None else content
    fields["type"] = _type(item.type, f"{path}.type") or item.kind
    fields["metadata"] = item.metadata or {}
    return memories.NewMemory(**fields)


def _type(given: str | None, path: str) -> str | None:
    if given is not None and not given.strip():
        raise Invalid.field(path, "must not be blank")
    return given


_LISTS: Final = frozenset({"facts", "concepts", "files_read", "files_modified"})


def _changes(data: MemoryPatch) -> dict[str, Any]:
    """Return what a PATCH sets. A list, an object or a flag that is cleared is empty, a type falls back to the kind."""
    changes = {name: value for name, value in msgspec.structs.asdict(data).items() if value is not UNSET}
    if "content" in changes:
        content = changes.pop("content")
        if changes.get("narrative", content) != content:
            raise Invalid.field("body.content", "is another name for narrative; the two differ")
        changes["narrative"] = content
    for name in _LISTS & changes.keys():
        changes[name] = changes[name] or []
    if "metadata" in changes:
        changes["metadata"] = changes["metadata"] or {}
    if "pinned" in changes:
        changes["pinned"] = changes["pinned"] or False
    if "type" in changes:
        changes["type"] = _type(changes["type"], "body.type")
    return changes


def _unless_changed(if_match: str | None) -> Callable[[Memory], bool]:
    """Return the precondition of an If-Match header (RFC 9110, section 13.1.1)."""
    if if_match is None or if_match.strip() == "*":
        return lambda _: True
    wanted = {tag.strip() for tag in if_match.split(",")}
    return lambda memory: _etag(memory) in wanted


def _named(project_id: str | None) -> tuple[str, ...]:
    return () if project_id is None else (project_id,)


def _etag(memory: Memory) -> str:
    return f'"{memory.version}"'


def _one(memory: Memory) -> Response[MemoryReply]:
    return Response(MemoryReply(memory=_view(memory)), headers={"ETag": _etag(memory)})


def _as_with(stored: MemoryStored, status: int) -> MemoryStored:
    return msgspec.structs.replace(stored, deduplicated=status == 200)


def _batch(stored: list[Memory]) -> MemoryBatch:
    return MemoryBatch(memories=[_view(memory) for memory in stored])


def _page(found: Any) -> MemoryPage:
    return MemoryPage(memories=[_view(memory) for memory in found.rows], next_cursor=found.next_cursor)


def _source(source: Source) -> SourceView:
    return SourceView(**{name: getattr(source, name) for name in SourceView.__struct_fields__})
