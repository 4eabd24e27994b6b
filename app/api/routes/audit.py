"""/v1/audit: who did what to which thing."""

from functools import partial
from typing import Annotated, Literal

from litestar import Router, get
from litestar.params import QueryParameter
from msgspec import structs

from app.api.http.parameters import Cursor, Limit, ProjectId, epoch_ms
from app.api.http.request import ApiRequest
from app.api.http.schemas import Wire
from app.caller import AUDIT_READ
from app.services.audit import entries
from app.services.projects import projects
from app.store.records import AuditEntry

Action = Annotated[str | None, QueryParameter(name="action", description="`key.create`, `memory.delete` and the like.")]
ActorId = Annotated[str | None, QueryParameter(name="actorId", description="The key that acted.")]
TargetId = Annotated[str | None, QueryParameter(name="targetId", description="What it was done to.")]
After = Annotated[str | None, QueryParameter(name="after", description="Not before: epoch ms or RFC 3339.")]
Before = Annotated[str | None, QueryParameter(name="before", description="Earlier than: epoch ms or RFC 3339.")]


class AuditView(Wire, frozen=True, kw_only=True):
    """An entry. `actorId` is a key; `count` says how many things, or how many times."""

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
    """A page of entries."""

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
    """List what was done and what was refused, newest first. What other processes refused may lag by a second."""
    filters = entries.Filters(
        project_id=project_id,
        action=action,
        actor_id=actor_id,
        target_id=target_id,
        after=epoch_ms("after", after),
        before=epoch_ms("before", before),
    )
    await request.parts.metering.tell(request.parts.workers)
    return await request.parts.workers.read(partial(_list, request, filters, limit, cursor))


def _list(request: ApiRequest, filters: entries.Filters, limit: int, cursor: str | None) -> AuditPage:
    with request.database.read() as connection:
        if filters.project_id is not None:
            projects.require(connection, request.caller, filters.project_id)
        page = entries.listing(connection, request.caller, filters, limit=limit, cursor=cursor)
    return AuditPage(audit=[_view(entry) for entry in page.rows], next_cursor=page.next_cursor)


router = Router("/", route_handlers=[list_audit], tags=["audit"])


def _view(entry: AuditEntry) -> AuditView:
    fields = structs.asdict(entry)
    return AuditView(**{name: fields[name] for name in AuditView.__struct_fields__})
