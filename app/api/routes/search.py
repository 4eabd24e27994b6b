"""/v1/search: memories that answer a question."""

from typing import Annotated

from litestar import Router, post
from litestar.params import JSONBody
from msgspec import Meta

from app.api.http import counters
from app.api.http.request import ApiRequest
from app.api.http.schemas import EpochMs, Id, Label, Text, Wire
from app.api.http.thread_pools import searching
from app.api.routes.memories import Kind, MemoryView, memory_view
from app.caller import MEMORIES_READ
from app.errors import Invalid
from app.services.search.engine import (
    DEFAULT_LIMIT,
    MAX_LIMIT,
    Asked,
    FallbackReason,
    Found,
    Hit,
    Leg,
    Mode,
    OrderBy,
    Strategy,
)
from app.store.fulltext import Filters

MAX_PROJECTS = 50


class FilterSet(Wire, frozen=True, kw_only=True):
    """Which memories are meant. Times are half open: `createdAfter` ≤ t < `createdBefore`."""

    project_id: Id | None = None
    project_ids: Annotated[list[Id], Meta(min_length=1, max_length=MAX_PROJECTS)] | None = None
    kinds: list[Kind] | None = None
    types: list[Label] | None = None
    concepts: list[Label] | None = None
    files: list[Label] | None = None
    platform_source: Label | None = None
    server_session_id: Id | None = None
    created_after: EpochMs | None = None
    created_before: EpochMs | None = None


class FilterFields(FilterSet, frozen=True, kw_only=True):
    """The filters of search and context. Times are half open: `createdAfter` ≤ t < `createdBefore`."""

    min_score: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None


class SearchRequest(FilterFields, frozen=True, kw_only=True):
    """A search. Whatever `query` holds is searched for as text; it may be left out when a filter is given."""

    query: Text | None = None
    mode: Mode = "auto"
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT
    cursor: Annotated[str, Meta(max_length=2_000)] | None = None
    order_by: OrderBy = "relevance"
    explain: bool = False


class LegShare(Wire, frozen=True, kw_only=True):
    """What one leg said of a memory."""

    leg: Leg
    rank: int
    score: float
    weight: float


class FoundMemory(MemoryView, frozen=True, kw_only=True):
    """A memory that was found. `score` compares within one reply only; `explain` is there when it was asked for."""

    score: float
    matched_by: list[Leg]
    snippet: str | None
    explain: list[LegShare] | None


class SearchReport(Wire, frozen=True, kw_only=True):
    """How the answer came about. `notice` says to a person what is missing from it, if anything is."""

    strategy: Strategy
    degraded: bool
    chroma_available: bool
    fallback_reason: FallbackReason | None
    notice: str | None
    result_count: int
    duration_ms: int


class SearchReply(Wire, frozen=True, kw_only=True):
    """A page of what was found."""

    memories: list[FoundMemory]
    search: SearchReport
    next_cursor: str | None


@post("/search", operation_id="searchMemories", scope=MEMORIES_READ, status_code=200)
@searching
def search_memories(request: ApiRequest, data: JSONBody[SearchRequest]) -> SearchReply:
    """Find memories by words and meaning, best first; without a query, list what the filters let through."""
    asked = Asked(
        project_ids=project_ids(data),
        query=data.query,
        mode=data.mode,
        limit=data.limit,
        cursor=data.cursor,
        filters=filters(data),
        order_by=data.order_by,
        min_score=data.min_score,
        explain=data.explain,
    )
    found = request.parts.search.search(request.database, request.caller, asked)
    return SearchReply(
        memories=[found_memory(hit) for hit in found.hits], search=report(found), next_cursor=found.next_cursor
    )


router = Router("/", route_handlers=[search_memories], tags=["search"])


def project_ids(data: FilterSet) -> tuple[str, ...]:
    """Return the projects a body names; none means the credential's own."""
    if data.project_id is not None and data.project_ids is not None:
        raise Invalid.field("body.projectIds", "name projectId or projectIds, not both")
    return tuple(data.project_ids or ([data.project_id] if data.project_id is not None else []))


def filters(data: FilterSet) -> Filters:
    """Return the filters of a body."""
    return Filters(
        kinds=tuple(data.kinds or ()),
        types=tuple(data.types or ()),
        concepts=tuple(data.concepts or ()),
        files=tuple(data.files or ()),
        platform_source=data.platform_source,
        server_session_id=data.server_session_id,
        created_after=data.created_after,
        created_before=data.created_before,
    )


def found_memory(hit: Hit) -> FoundMemory:
    """Return a hit as it travels."""
    shares = [LegShare(leg=s.leg, rank=s.rank, score=s.score, weight=s.weight) for s in hit.shares]
    return memory_view(
        hit.memory,
        FoundMemory,
        score=hit.score,
        matched_by=list(hit.matched_by),
        snippet=hit.snippet,
        explain=shares or None,
    )


def report(found: Found) -> SearchReport:
    """Return how a search came about, as it travels, and count it."""
    counters.SEARCHES.labels(found.strategy, str(found.degraded).lower(), found.fallback_reason or "").inc()
    return SearchReport(
        strategy=found.strategy,
        degraded=found.degraded,
        chroma_available=found.chroma_available,
        fallback_reason=found.fallback_reason,
        notice=found.notice,
        result_count=len(found.hits),
        duration_ms=found.duration_ms,
    )
