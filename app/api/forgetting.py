"""Forgetting much at once: memories by filter, and a session with everything of it."""

from litestar import Router, delete, post
from litestar.params import JSONBody

from app.api.parameters import PathId
from app.api.request import ApiRequest
from app.api.search import FilterSet, filters, project_ids
from app.api.threads import reading
from app.api.wire import Wire
from app.caller import TEAM_ADMIN
from app.services import purging


class MemoryDeletion(FilterSet, frozen=True, kw_only=True):
    """Which memories to delete: at least one filter is needed. `dryRun` only counts them."""

    dry_run: bool = False


class MemoriesDeleted(Wire, frozen=True, kw_only=True):
    """How many memories are gone, or would be."""

    deleted: int
    dry_run: bool


class SessionDeleted(Wire, frozen=True, kw_only=True):
    """The session is gone, with its memories and events."""

    deleted: bool
    id: str
    memories: int
    events: int


@post("/memories/delete", operation_id="deleteMemories", scope=TEAM_ADMIN, status_code=200)
@reading  # it takes the write lock batch by batch
def delete_memories(request: ApiRequest, data: JSONBody[MemoryDeletion]) -> MemoriesDeleted:
    """Delete the memories that the filters of search let through, pinned ones too.

    Of the whole team when no project is named.
    """
    deleted = purging.remove_matching(
        request.database, request.caller, project_ids(data), filters(data), dry_run=data.dry_run
    )
    return MemoriesDeleted(deleted=deleted, dry_run=data.dry_run)


@delete("/sessions/{session_id:str}", operation_id="deleteSession", scope=TEAM_ADMIN, status_code=200)
@reading  # it takes the write lock batch by batch
def delete_session(request: ApiRequest, session_id: PathId) -> SessionDeleted:
    """Delete a session with its memories and events."""
    memories, events = purging.remove_session(request.database, request.caller, session_id)
    return SessionDeleted(deleted=True, id=session_id, memories=memories, events=events)


router = Router("/", route_handlers=[delete_memories, delete_session], tags=["memories"])
