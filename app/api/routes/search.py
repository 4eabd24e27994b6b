"""/v1/search: memories that answer a question."""

from typing import Annotated, Final

from litestar import Router, post
from litestar.params import JSONBody
from msgspec import Meta
from prometheus_client import Counter

from app.api.http.request import ApiRequest
from app.api.http.schemas import EpochMs, Id, Label, Text, Wire, to_view
from app.api.http.thread_pools import searching
from app.api.routes.memories import Kind, MemoryView
from app.caller import MEMORIES_READ
from app.errors import Invalid
from app.services.search.query import DEFAULT_LIMIT, MAX_LIMIT, Mode, OrderBy, SearchParams
from app.services.search.results import FallbackReason, Hit, Retriever, SearchResults, Strategy
from app.store.fulltext import MemoryFilters

MAX_PROJECTS = 50
_SEARCHES: Final = Counter(
    "cmem_searches", "Searches by how they were answered, and why not by meaning.", ("strategy", "degraded", "reason")
)


class FilterSet(Wire, frozen=True, kw_only=True):
    """Which memories to consider. Time ranges are half-open: `createdAfter` ≤ t < `createdBefore`."""

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
    """The filters of search and context. Time ranges are half-open: `createdAfter` ≤ t < `createdBefore`."""

    min_score: Annotated[float, Meta(ge=0.0, le=1.0)] | None = None


class SearchRequest(FilterFields, frozen=True, kw_only=True):
    """A search. `query` is plain text, without operators; it may be omitted if a filter is given."""

    query: Text | None = None
    mode: Mode = "auto"
    limit: Annotated[int, Meta(ge=1, le=MAX_LIMIT)] = DEFAULT_LIMIT
    cursor: Annotated[str, Meta(max_length=2_000)] | None = None
    order_by: OrderBy = "relevance"
    explain: bool = False


class LegShare(Wire, frozen=True, kw_only=True):
    """How one retriever (keyword or semantic search) ranked a memory."""

    leg: Retriever
    rank: int
    score: float
    weight: float


class FoundMemory(MemoryView, frozen=True, kw_only=True):
    """A search hit. `score` is comparable within one reply only; `explain` is null unless requested."""

    score: float
    matched_by: list[Retriever]
    snippet: str | None
    explain: list[LegShare] | None


class SearchReport(Wire, frozen=True, kw_only=True):
    """How the results were obtained. `notice` tells people what is missing from them, if anything."""

    strategy: Strategy
    degraded: bool
    chroma_available: bool
    fallback_reason: FallbackReason | None
    notice: str | None
    result_count: int
    duration_ms: int


class SearchReply(Wire, frozen=True, kw_only=True):
    """A page of search results."""

    memories: list[FoundMemory]
    search: SearchReport
    next_cursor: str | None


@post("/search", operation_id="searchMemories", scope=MEMORIES_READ, status_code=200)
@searching
def search_memories(request: ApiRequest, data: JSONBody[SearchRequest]) -> SearchReply:
    """Find memories by words and meaning, best first. Without a query, list the memories that match the filters."""
    params = SearchParams(
        project_ids=to_project_ids(data),
        query=data.query,
        mode=data.mode,
        limit=data.limit,
        cursor=data.cursor,
        filters=to_filters(data),
        order_by=data.order_by,
        min_score=data.min_score,
        explain=data.explain,
    )
    results = request.app_state.search.search(request.database, request.caller, params)
    return SearchReply(
        memories=[to_found_memory(hit) for hit in results.hits],
        search=to_report(results),
        next_cursor=results.next_cursor,
    )


router = Router("/", route_handlers=[search_memories], tags=["search"])


def to_project_ids(data: FilterSet) -> tuple[str, ...]:
    """Return the projects that a body names; none means all that the credential can access."""
    if data.project_id is not None and data.project_ids is not None:
        raise Invalid.field("body.projectIds", "must not be combined with projectId")
    return tuple(data.project_ids or ([data.project_id] if data.project_id is not None else []))


def to_filters(data: FilterSet) -> MemoryFilters:
    """Return the filters of a body."""
    return MemoryFilters(
        kinds=tuple(data.kinds or ()),
        types=tuple(data.types or ()),
        concepts=tuple(data.concepts or ()),
        files=tuple(data.files or ()),
        platform_source=data.platform_source,
        server_session_id=data.server_session_id,
        created_after=data.created_after,
        created_before=data.created_before,
    )


def to_found_memory(hit: Hit) -> FoundMemory:
    """Return a search hit as it is sent."""
    explanation = [to_view(LegShare, each, leg=each.retriever) for each in hit.contributions]
    return to_view(
        FoundMemory,
        hit.memory,
        score=hit.score,
        matched_by=list(hit.matched_by),
        snippet=hit.snippet,
        explain=explanation or None,
    )


def to_report(results: SearchResults) -> SearchReport:
    """Return how the results were obtained, as it is sent, and count the search in the metrics."""
    _SEARCHES.labels(results.strategy, str(results.degraded).lower(), results.fallback_reason or "").inc()
    return SearchReport(
        strategy=results.strategy,
        degraded=results.degraded,
        chroma_available=results.chroma_available,
        fallback_reason=results.fallback_reason,
        notice=results.notice,
        result_count=len(results.hits),
        duration_ms=results.duration_ms,
    )
