"""/v1/memories/{id}/related: what belongs to a memory."""

from typing import Annotated

from litestar import Router, get
from litestar.params import QueryParameter

from app.api.http.parameters import PathId
from app.api.http.request import ApiRequest
from app.api.http.schemas import Wire
from app.api.http.thread_pools import searching
from app.api.routes import search
from app.api.routes.memories import MemoryView, memory_view
from app.api.routes.search import SearchReport
from app.caller import MEMORIES_READ
from app.services.search import related
from app.services.search.related import DEFAULT_LIMIT, MAX_LIMIT, Related, Why


class RelatedMemory(MemoryView, frozen=True, kw_only=True):
    """A memory that belongs to another one. `score` compares within one reply only."""

    score: float
    matched_by: list[Why]
    snippet: str | None


class RelatedReply(Wire, frozen=True, kw_only=True):
    """Related memories, best first, and how the search for similar ones came about."""

    memories: list[RelatedMemory]
    search: SearchReport


@get("/memories/{memory_id:str}/related", operation_id="listRelatedMemories", scope=MEMORIES_READ)
@searching
def list_related(
    request: ApiRequest,
    memory_id: PathId,
    limit: Annotated[
        int, QueryParameter(name="limit", ge=1, le=MAX_LIMIT, description="Memories to return.")
    ] = DEFAULT_LIMIT,
) -> RelatedReply:
    """List what is related to a memory in its project: near in meaning, sharing its words, or beside it in its session.

    Without the vector index, words and session alone speak; `search` says so.
    """
    relations = related.to(request.parts.search, request.database, request.caller, memory_id, limit=limit)
    return RelatedReply(
        memories=[_related_memory(each) for each in relations.related], search=search.report(relations.found)
    )


router = Router("/", route_handlers=[list_related], tags=["memories"])


def _related_memory(each: Related) -> RelatedMemory:
    return memory_view(
        each.memory, RelatedMemory, score=each.score, matched_by=list(each.matched_by), snippet=each.snippet
    )
