"""Bulk deletion: memories by filter, whole sessions, and everything about one person."""

from litestar import Router, delete, post
from litestar.params import JSONBody
from msgspec import structs

from app.api.http.parameters import PathId
from app.api.http.request import ApiRequest
from app.api.http.schemas import Id, Label, Wire
from app.api.http.thread_pools import writing_in_slices
from app.api.routes.search import FilterSet, to_filters, to_project_ids
from app.caller import TEAM_ADMIN
from app.services.deletion import bulk_delete, erasure


class MemoryDeletion(FilterSet, frozen=True, kw_only=True):
    """Which memories to delete; at least one filter is required. `dryRun` only counts them."""

    dry_run: bool = False


class MemoriesDeleted(Wire, frozen=True, kw_only=True):
    """How many memories were deleted, or would be in a dry run."""

    deleted: int
    dry_run: bool


class SessionDeleted(Wire, frozen=True, kw_only=True):
    """The session was deleted with its memories and events."""

    deleted: bool
    id: str
    memories: int
    events: int


@post("/memories/delete", operation_id="deleteMemories", scope=TEAM_ADMIN, status_code=200)
@writing_in_slices
def delete_memories(request: ApiRequest, data: JSONBody[MemoryDeletion]) -> MemoriesDeleted:
    """Delete the memories that match filters like those of search, pinned ones included.

    Without a project, the filters apply to the whole team.
    """
    deleted = bulk_delete.remove_matching(
        request.database, request.caller, to_project_ids(data), to_filters(data), dry_run=data.dry_run
    )
    return MemoriesDeleted(deleted=deleted, dry_run=data.dry_run)


@delete("/sessions/{session_id:str}", operation_id="deleteSession", scope=TEAM_ADMIN, status_code=200)
@writing_in_slices
def delete_session(request: ApiRequest, session_id: PathId) -> SessionDeleted:
    """Delete a session with its memories and events."""
    memories, events = bulk_delete.remove_session(request.database, request.caller, session_id)
    return SessionDeleted(deleted=True, id=session_id, memories=memories, events=events)


class ErasureRequest(Wire, frozen=True, kw_only=True):
    """What identifies a person: at least one field is required, and all given fields must match."""

    platform_source: Label | None = None
    actor: Id | None = None
    metadata: dict[str, str] | None = None
    dry_run: bool = False


class ReceiptView(Wire, frozen=True, kw_only=True):
    """What was removed, or would be in a dry run. `auditEntries` still refer to it, by id and never by content."""

    id: str
    at_epoch: int
    dry_run: bool
    memories: int
    sources: int
    full_text: int
    vectors: int
    outbox: int
    events: int
    sessions: int
    idempotency_records: int
    audit_entries: int


class ErasureReply(Wire, frozen=True, kw_only=True):
    """The receipt."""

    receipt: ReceiptView


@post("/erasures", operation_id="erasePerson", scope=TEAM_ADMIN, status_code=200)
@writing_in_slices
def erase_person(request: ApiRequest, data: JSONBody[ErasureRequest]) -> ErasureReply:
    """Erase one person's data in the team.

    Removes matching sessions with everything in them, and matching memories and events outside them.
    """
    selector = erasure.Selector(platform_source=data.platform_source, actor=data.actor, metadata=data.metadata or {})
    receipt = erasure.erase(request.database, request.caller, selector, dry_run=data.dry_run)
    return ErasureReply(receipt=ReceiptView(**structs.asdict(receipt)))


router = Router("/", route_handlers=[delete_memories, delete_session, erase_person], tags=["memories"])
