"""/v1/context: relevant memories, formatted for a prompt."""

from typing import Annotated

from litestar import Router, post
from litestar.params import JSONBody
from msgspec import Meta

from app.api.http.request import ApiRequest
from app.api.http.schemas import Text, Wire
from app.api.http.thread_pools import searching
from app.api.routes import search
from app.api.routes.search import FilterFields, FoundMemory, SearchReport
from app.caller import MEMORIES_READ
from app.retrieval.context import Language
from app.services.search import context
from app.services.search.context import ContextParams, Format


class ContextRequest(FilterFields, frozen=True, kw_only=True):
    """A question to gather context for. Sizes are in Unicode code points."""

    query: Text
    limit: Annotated[int, Meta(ge=1, le=context.MAX_LIMIT)] = context.DEFAULT_LIMIT
    max_chars: Annotated[int, Meta(ge=50, le=100_000)] = context.DEFAULT_MAX_CHARS
    max_chars_per_memory: Annotated[int, Meta(ge=20, le=10_000)] = context.DEFAULT_MAX_CHARS_PER_MEMORY
    format: Format = "block"
    language: Language = "en"


class ContextReply(Wire, frozen=True, kw_only=True):
    """The text for the prompt, and the memories in it. `omitted` counts relevant memories that did not fit."""

    context: str
    sufficient: bool
    memories: list[FoundMemory]
    omitted: int
    search: SearchReport


@post("/context", operation_id="getContext", scope=MEMORIES_READ, status_code=200)
@searching
def get_context(request: ApiRequest, data: JSONBody[ContextRequest]) -> ContextReply:
    """Return what the memories say about a question, as text for a prompt; empty if nothing is relevant enough."""
    params = ContextParams(
        project_ids=search.to_project_ids(data),
        query=data.query,
        limit=data.limit,
        max_chars=data.max_chars,
        max_chars_per_memory=data.max_chars_per_memory,
        min_score=data.min_score,
        format=data.format,
        language=data.language,
        filters=search.to_filters(data),
    )
    result = context.build(request.app_state.search, request.database, request.caller, params)
    return ContextReply(
        context=result.context,
        sufficient=result.sufficient,
        memories=[search.to_found_memory(hit) for hit in result.hits],
        omitted=result.omitted,
        search=search.to_report(result.results),
    )


router = Router("/", route_handlers=[get_context], tags=["search"])
