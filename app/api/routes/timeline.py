"""/v1/timeline: what happened before and after a moment."""

import re
from typing import Annotated, Final, Literal

from litestar import Router, get
from litestar.params import QueryParameter

from app.api.http.parameters import epoch_ms
from app.api.http.request import ApiRequest
from app.api.http.schemas import Wire, to_view
from app.api.http.thread_pools import searching
from app.api.routes.memories import MemoryView
from app.api.routes.sessions import SessionView, to_session_view
from app.caller import MEMORIES_READ
from app.errors import Invalid
from app.services.search import timeline
from app.services.search.timeline import DEFAULT_COUNT, MAX_COUNT, Anchor, TimelineEntry, TimelineParams
from app.store.records import Memory, Session

_TIME: Final = re.compile(r"\d+|\d{4}-\d\d-\d\d(\D.*)?", re.ASCII | re.DOTALL)
"""What starts like a date or consists of digits only is taken as a time; anything else is an id."""


class TimelineAnchor(Wire, frozen=True, kw_only=True):
    """The moment the timeline is centred on; `memoryId` is null when it was given as a time."""

    memory_id: str | None
    at_epoch: int


class TimelineItem(Wire, frozen=True, kw_only=True):
    """A memory or a session, under the key that `itemType` names; the other key is null."""

    item_type: Literal["memory", "session"]
    id: str
    at_epoch: int
    memory: MemoryView | None
    session: SessionView | None


class TimelineReply(Wire, frozen=True, kw_only=True):
    """Items in chronological order. `anchor` is null if the query matched nothing."""

    anchor: TimelineAnchor | None
    items: list[TimelineItem]


@get("/timeline", operation_id="getTimeline", scope=MEMORIES_READ, errors=(404,))
@searching
def get_timeline(
    request: ApiRequest,
    project_id: Annotated[
        str | None,
        QueryParameter(name="projectId", description="The project. May be omitted with a key that is bound to one."),
    ] = None,
    anchor: Annotated[
        str | None,
        QueryParameter(name="anchor", description="The id of a memory, epoch milliseconds, or an RFC 3339 time."),
    ] = None,
    question: Annotated[
        str | None,
        QueryParameter(
            name="query", description="Instead of an anchor: the memory that answers this best is the anchor."
        ),
    ] = None,
    before: Annotated[
        int, QueryParameter(name="before", ge=0, le=MAX_COUNT, description="Number of items before the anchor.")
    ] = DEFAULT_COUNT,
    after: Annotated[
        int,
        QueryParameter(
            name="after", ge=0, le=MAX_COUNT, description="Number of items after the anchor, or at the same time."
        ),
    ] = DEFAULT_COUNT,
) -> TimelineReply:
    """List the memories (prompts included) and sessions around a moment, in chronological order.

    The moment is an `anchor` or the memory that answers a `query` best. A memory that is the anchor is also an item.
    """
    if (anchor is None) == (question is None):
        raise Invalid.field("query.anchor", "exactly one of anchor and query must be given")
    is_time = anchor is not None and _TIME.fullmatch(anchor) is not None
    params = TimelineParams(
        project_id=project_id,
        at_epoch=epoch_ms("anchor", anchor) if is_time else None,
        memory_id=None if is_time else anchor,
        query=question,
        before=before,
        after=after,
    )
    result = timeline.around(request.app_state.search, request.database, request.caller, params)
    return TimelineReply(anchor=_anchor(result.anchor), items=[_item(item) for item in result.items])


router = Router("/", route_handlers=[get_timeline], tags=["search"])


def _anchor(anchor: Anchor | None) -> TimelineAnchor | None:
    if anchor is None:
        return None
    return TimelineAnchor(memory_id=anchor.memory.id if anchor.memory else None, at_epoch=anchor.at_epoch)


def _item(item: TimelineEntry) -> TimelineItem:
    record = item.record
    return TimelineItem(
        item_type=item.type,
        id=record.id,
        at_epoch=item.at_epoch,
        memory=to_view(MemoryView, record) if isinstance(record, Memory) else None,
        session=to_session_view(record) if isinstance(record, Session) else None,
    )
