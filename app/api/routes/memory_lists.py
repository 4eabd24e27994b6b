"""GET /v1/memories and /v1/memories/by-file: lists of memories, newest first by default."""

from typing import Annotated, Literal

from litestar import Router, get
from litestar.params import QueryParameter

from app.api.http.parameters import Cursor, Limit, ProjectId, epoch_ms
from app.api.http.request import ApiRequest
from app.api.http.schemas import Wire, to_view
from app.api.http.thread_pools import reading
from app.api.routes.memories import Kind, MemoryView
from app.caller import MEMORIES_READ
from app.errors import Invalid
from app.services.memories import listing
from app.services.shared import platforms
from app.services.shared.paging import Page
from app.store.fulltext import MemoryFilters
from app.store.records import Memory

Kinds = Annotated[list[Kind] | None, QueryParameter(name="kinds", description="Memories of any of these kinds.")]
Types = Annotated[list[str] | None, QueryParameter(name="types", description="Memories of any of these types.")]
Concepts = Annotated[
    list[str] | None, QueryParameter(name="concepts", description="Memories with any of these concepts.")
]
Files = Annotated[
    list[str] | None,
    QueryParameter(name="files", description="Memories that read or modified any of these files or folders."),
]
PlatformSource = Annotated[str | None, QueryParameter(name="platformSource")]
ServerSessionId = Annotated[str | None, QueryParameter(name="serverSessionId")]
CreatedAfter = Annotated[
    str | None,
    QueryParameter(name="createdAfter", description="Earliest time, inclusive: epoch milliseconds or RFC 3339."),
]
CreatedBefore = Annotated[
    str | None,
    QueryParameter(name="createdBefore", description="Latest time, exclusive: epoch milliseconds or RFC 3339."),
]
OrderBy = Annotated[Literal["newest", "oldest"], QueryParameter(name="orderBy")]
FilePaths = Annotated[
    list[str], QueryParameter(name="path", description="A file or folder; repeat the parameter for several.")
]
IsFolder = Annotated[
    bool | None,
    QueryParameter(
        name="isFolder", description="`true` or omitted: the path and everything below it; `false`: exactly this file."
    ),
]


class MemoryPage(Wire, frozen=True, kw_only=True):
    """A page of memories."""

    memories: list[MemoryView]
    next_cursor: str | None


@get("/memories", operation_id="listMemories", scope=MEMORIES_READ)
@reading
def list_memories(
    request: ApiRequest,
    project_id: ProjectId = None,
    kinds: Kinds = None,
    types: Types = None,
    concepts: Concepts = None,
    files: Files = None,
    platform_source: PlatformSource = None,
    server_session_id: ServerSessionId = None,
    created_after: CreatedAfter = None,
    created_before: CreatedBefore = None,
    order_by: OrderBy = "newest",
    limit: Limit = 50,
    cursor: Cursor = None,
) -> MemoryPage:
    """List memories by time of creation, newest first by default, with the same filters as search."""
    filters = MemoryFilters(
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
        page = listing.list_page(
            connection,
            request.caller,
            _project_ids(project_id),
            filters,
            limit=limit,
            cursor=cursor,
            oldest_first=order_by == "oldest",
        )
    return _page(page)


@get("/memories/by-file", operation_id="listMemoriesByFile", scope=MEMORIES_READ)
@reading
def list_memories_by_file(
    request: ApiRequest,
    path: FilePaths,
    project_id: ProjectId = None,
    is_folder: IsFolder = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> MemoryPage:
    """List the memories that read or modified any of the given files or folders, newest first."""
    if not all(each.strip() for each in path):
        raise Invalid.field("query.path", "must not be blank")
    filters = MemoryFilters(files=tuple(path), files_exact=is_folder is False)
    with request.database.read() as connection:
        page = listing.list_page(
            connection, request.caller, _project_ids(project_id), filters, limit=limit, cursor=cursor
        )
    return _page(page)


router = Router("/", route_handlers=[list_memories, list_memories_by_file], tags=["memories"])


def _project_ids(project_id: str | None) -> tuple[str, ...]:
    return () if project_id is None else (project_id,)


def _page(page: Page[Memory]) -> MemoryPage:
    return MemoryPage(memories=[to_view(MemoryView, memory) for memory in page.rows], next_cursor=page.next_cursor)
