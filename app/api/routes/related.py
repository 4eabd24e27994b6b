"""/v1/memories/{id}/related: memories related to a memory."""

from typing import Annotated

from litestar import Router, get
from litestar.params import QueryParameter

from app.api.http.parameters import PathId
from app.api.http.request import ApiRequest
from app.api.http.schemas import Wire, to_view
from app.api.http.thread_pools import searching
from app.api.routes import search
from app.api.routes.memories import MemoryView
from app.api.routes.search import SearchReport
from app.caller import MEMORIES_READ
from app.services.search import related
from app.services.search.related import DEFAULT_LIMIT, MAX_LIMIT, Related, Relation


class RelatedMemory(MemoryView, frozen=True, kw_only=True):
    """A related memory. `score` is comparable within one reply only."""

    score: float
    matched_by: list[Relation]
    snippet: str | None


class RelatedReply(Wire, frozen=True, kw_only=True):
    """Related memories, best first, and how the similar ones were searched for."""

    memories: list[RelatedMemory]
    search: SearchReport


@get("/memories/{memory_id:str}/related", operation_id="listRelatedMemories", scope=MEMORIES_READ)
@searching
def list_related(
    request: ApiRequest,
    memory_id: PathId,
    limit: Annotated[
        int, QueryParameter(name="limit", ge=1, le=MAX_LIMIT, description="Maximum number of memories.")
    ] = DEFAULT_LIMIT,
) -> RelatedReply:
    """List the memories of the same project that are related to a memory.

    They are similar in meaning, share words with it, or are adjacent in its session. Without the vector index, only
    words and session count, and `search` says so.
    """
    found = related.find(request.app_state.search, request.database, request.caller, memory_id, limit=limit)
    memories = [_related_memory(hit) for hit in found.related]
    return RelatedReply(memories=memories, search=search.to_report(found.results))


router = Router("/", route_handlers=[list_related], tags=["memories"])


def _related_memory(hit: Related) -> RelatedMemory:
    return to_view(RelatedMemory, hit.memory, score=hit.score, matched_by=list(hit.matched_by), snippet=hit.snippet)
