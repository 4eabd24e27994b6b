"""/v1/audit: who did what, and to which resource."""

from functools import partial
from typing import Annotated, Literal

from litestar import Router, get
from litestar.params import QueryParameter

from app.api.http.parameters import Cursor, Limit, ProjectId, epoch_ms
from app.api.http.request import ApiRequest
from app.api.http.schemas import Wire, to_view
from app.caller import AUDIT_READ
from app.services.audit import entries
from app.services.projects import projects

Action = Annotated[
    str | None, QueryParameter(name="action", description="The action, e.g. `key.create` or `memory.delete`.")
]
ActorId = Annotated[str | None, QueryParameter(name="actorId", description="Id of the API key that acted.")]
TargetId = Annotated[str | None, QueryParameter(name="targetId", description="Id of the resource that was acted on.")]
After = Annotated[
    str | None, QueryParameter(name="after", description="Earliest time, inclusive: epoch milliseconds or RFC 3339.")
]
Before = Annotated[
    str | None, QueryParameter(name="before", description="Latest time, exclusive: epoch milliseconds or RFC 3339.")
]


class AuditView(Wire, frozen=True, kw_only=True):
    """An audit entry. `actorId` is an API key; `count` is the number of resources affected, or of repetitions."""

    id: str
    project_id: str | None
    actor_id: str | None
    user_id: str | None
    action: str
    target_type: str
    target_id: str | None
    outcome: Literal["done", "refused"]
    count: int
    request_id: str | None
    created_at_epoch: int


class AuditPage(Wire, frozen=True, kw_only=True):
    """A page of audit entries."""

    audit: list[AuditView]
    next_cursor: str | None


@get("/audit", operation_id="listAudit", scope=AUDIT_READ)
async def list_audit(
    request: ApiRequest,
    project_id: ProjectId = None,
    action: Action = None,
    actor_id: ActorId = None,
    target_id: TargetId = None,
    after: After = None,
    before: Before = None,
    limit: Limit = 50,
    cursor: Cursor = None,
) -> AuditPage:
    """List actions that were performed or refused, newest first.

    Refusals by other processes of the server may appear up to a second late.
    """
    filters = entries.AuditFilters(
        project_id=project_id,
        action=action,
        actor_id=actor_id,
        target_id=target_id,
        after=epoch_ms("after", after),
        before=epoch_ms("before", before),
    )
    await request.app_state.recorder.flush()
    return await request.app_state.thread_pools.read(partial(_list, request, filters, limit, cursor))


def _list(request: ApiRequest, filters: entries.AuditFilters, limit: int, cursor: str | None) -> AuditPage:
    with request.database.read() as connection:
        if filters.project_id is not None:
            projects.require(connection, request.caller, filters.project_id)
        page = entries.list_page(connection, request.caller, filters, limit=limit, cursor=cursor)
    return AuditPage(audit=[to_view(AuditView, entry) for entry in page.rows], next_cursor=page.next_cursor)


router = Router("/", route_handlers=[list_audit], tags=["audit"])
