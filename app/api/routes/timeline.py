"""/v1/timeline: what came before and after a moment."""

import re
from typing import Annotated, Final, Literal

from litestar import Router, get
from litestar.params import QueryParameter

from app.api.http.parameters import epoch_ms
from app.api.http.request import ApiRequest
from app.api.http.schemas import Wire
from app.api.http.thread_pools import searching
from app.api.routes.memories import MemoryView, memory_view
from app.api.routes.sessions import SessionView, session_view
from app.caller import MEMORIES_READ
from app.errors import Invalid
from app.services.search import timeline
from app.services.search.timeline import DEFAULT_COUNT, MAX_COUNT, Anchor, Asked, Item
from app.store.records import Memory, Session

_TIME: Final = re.compile(r"\d+|\d{4}-\d\d-\d\d(\D.*)?", re.ASCII | re.DOTALL)
"""What begins like a date or holds digits alone can only be meant as a time; everything else is an id."""


class TimelineAnchor(Wire, frozen=True, kw_only=True):
    """What the timeline is around; `memoryId` is null when it is a time."""

    memory_id: str | None
    at_epoch: int


class TimelineItem(Wire, frozen=True, kw_only=True):
    """A memory or a session, under the key that `itemType` names; the other is null."""

    item_type: Literal["memory", "session"]
    id: str
    at_epoch: int
    memory: MemoryView | None
    session: SessionView | None


class TimelineReply(Wire, frozen=True, kw_only=True):
    """Items in time order. `anchor` is null when the query found nothing."""

    anchor: TimelineAnchor | None
    items: list[TimelineItem]


@get("/timeline", operation_id="getTimeline", scope=MEMORIES_READ, errors=(404,))
@searching
def get_timeline(
    request: ApiRequest,
    project_id: Annotated[
        str | None, QueryParameter(name="projectId", description="The project; a key that is bound to one needs none.")
    ] = None,
    anchor: Annotated[
        str | None, QueryParameter(name="anchor", description="The id of a memory, epoch ms, or RFC 3339.")
    ] = None,
    question: Annotated[
        str | None, QueryParameter(name="query", description="Instead of an anchor: the memory that answers it best.")
    ] = None,
    before: Annotated[
        int, QueryParameter(name="before", ge=0, le=MAX_COUNT, description="Items before the anchor.")
    ] = DEFAULT_COUNT,
    after: Annotated[
        int, QueryParameter(name="after", ge=0, le=MAX_COUNT, description="Items after the anchor, or at its time.")
    ] = DEFAULT_COUNT,
) -> TimelineReply:
    """Show memories, prompts among them, and sessions around a moment, in time order.

    The moment is an `anchor` or what answers a `query` best. An anchor that is a memory stands among the items.
    """
    if (anchor is None) == (question is None):
        raise Invalid.field("query.anchor", "name an anchor or a query, one of the two")
    is_time = anchor is not None and _TIME.fullmatch(anchor) is not None
    asked = Asked(
        project_id=project_id,
        at_epoch=epoch_ms("anchor", anchor) if is_time else None,
        memory_id=None if is_time else anchor,
        query=question,
        before=before,
        after=after,
    )
    told = timeline.around(request.parts.search, request.database, request.caller, asked)
    return TimelineReply(anchor=_anchor(told.anchor), items=[_item(item) for item in told.items])


router = Router("/", route_handlers=[get_timeline], tags=["search"])


def _anchor(anchor: Anchor | None) -> TimelineAnchor | None:
    if anchor is None:
        return None
    return TimelineAnchor(memory_id=anchor.memory.id if anchor.memory else None, at_epoch=anchor.at_epoch)


def _item(item: Item) -> TimelineItem:
    record = item.record
    return TimelineItem(
        item_type=item.type,
        id=record.id,
        at_epoch=item.at_epoch,
        memory=memory_view(record, MemoryView) if isinstance(record, Memory) else None,
        session=session_view(record) if isinstance(record, Session) else None,
    )
