"""/v1/vectors and /v1/operations: how the vector index stands, and its repairs."""

from typing import Annotated, Literal

from litestar import Response, Router, get, post
from litestar.params import JSONBody, QueryParameter
from msgspec import structs

from app.api.http.idempotency import Done, once
from app.api.http.parameters import PathId, ProjectId
from app.api.http.request import ApiRequest
from app.api.http.schemas import Id, Object, Wire
from app.api.http.thread_pools import reading, writing
from app.caller import MEMORIES_READ, SERVER_ADMIN, TEAM_ADMIN
from app.services.operations import jobs, vectors
from app.services.operations.jobs import Operation, Status
from app.services.operations.vectors import ProjectStatus, Repair
from app.vectors.index import VectorState
from app.vectors.probe import Probed, Stage

Deep = Annotated[
    int, QueryParameter(name="deep", ge=0, le=1, description="1: also try to connect, list, embed and query.")
]


class VectorRepair(Wire, frozen=True, kw_only=True):
    """What to repair: one project, or all that the credential reaches. `dryRun` counts and changes nothing."""

    project_id: Id | None = None
    dry_run: bool = False


class VectorProject(Wire, frozen=True, kw_only=True):
    """How far a project is mirrored, in memories; `skipped` have no text that could be embedded."""

    project_id: str
    collection: str
    memories: int
    indexed: int
    pending: int
    failed: int
    skipped: int
    oldest_pending_seconds: int | None


class VectorProbe(Wire, frozen=True, kw_only=True):
    """How far a try came: `stage` is `done`, or the one that failed; times are milliseconds by stage."""

    ok: bool
    stage: Stage
    error: str | None
    milliseconds: dict[str, float]


class VectorStatus(Wire, frozen=True, kw_only=True):
    """How the vector index stands."""

    mode: Literal["embedded", "http", "off"]
    state: VectorState
    model: str | None
    backoff_seconds: float
    last_error: str | None
    projects: list[VectorProject]
    probe: VectorProbe | None


class OperationView(Wire, frozen=True, kw_only=True):
    """Long work in the background; `result` has its counts once it is done."""

    id: str
    kind: str
    status: Status
    done: int
    total: int | None
    result: Object | None
    error: str | None
    created_at_epoch: int
    finished_at_epoch: int | None


class OperationReply(Wire, frozen=True, kw_only=True):
    """One operation."""

    operation: OperationView


@get("/vectors/status", operation_id="getVectorStatus", scope=MEMORIES_READ, or_scope=SERVER_ADMIN)
@reading
def get_vector_status(request: ApiRequest, project_id: ProjectId = None, deep: Deep = 0) -> VectorStatus:
    """Say how the vector index stands, and how far each project is mirrored. Only `deep=1` waits for the index."""
    index = request.parts.vectors
    with request.database.read() as connection:
        status = vectors.status(connection, request.caller, index, project_id=project_id)
    return VectorStatus(
        mode=status.mode,
        state=status.state,
        model=status.model,
        backoff_seconds=status.backoff_seconds,
        last_error=status.last_error,
        projects=[_project(project) for project in status.projects],
        probe=_probe(index.probe()) if deep and index else None,
    )


@post(
    "/vectors/backfill",
    operation_id="backfillVectors",
    scope=TEAM_ADMIN,
    or_scope=SERVER_ADMIN,
    idempotent=True,
    status_code=202,
)
@writing
def backfill_vectors(request: ApiRequest, data: JSONBody[VectorRepair]) -> Response[OperationReply]:
    """Mirror every memory again, also those that were set aside; what is unchanged is not embedded again."""
    return _ask(request, "backfill", data)


@post(
    "/vectors/rebuild",
    operation_id="rebuildVectors",
    scope=TEAM_ADMIN,
    or_scope=SERVER_ADMIN,
    idempotent=True,
    status_code=202,
)
@writing
def rebuild_vectors(request: ApiRequest, data: JSONBody[VectorRepair]) -> Response[OperationReply]:
    """Make collections anew while the old ones answer."""
    return _ask(request, "rebuild", data)


@post(
    "/vectors/verify",
    operation_id="verifyVectors",
    scope=TEAM_ADMIN,
    or_scope=SERVER_ADMIN,
    idempotent=True,
    status_code=202,
)
@writing
def verify_vectors(request: ApiRequest, data: JSONBody[VectorRepair]) -> Response[OperationReply]:
    """Compare the index with the memories by id and content, and repair what differs."""
    return _ask(request, "verify", data)


@get("/operations/{operation_id:str}", operation_id="getOperation", scope=TEAM_ADMIN, or_scope=SERVER_ADMIN)
@reading
def get_operation(request: ApiRequest, operation_id: PathId) -> OperationReply:
    """Return an operation: how far it is, and its result."""
    with request.database.read() as connection:
        return _reply(jobs.get(connection, request.caller, operation_id))


router = Router(
    "/",
    route_handlers=[get_vector_status, backfill_vectors, rebuild_vectors, verify_vectors, get_operation],
    tags=["vectors"],
)


def _ask(request: ApiRequest, repair: Repair, data: VectorRepair) -> Response[OperationReply]:
    def act() -> Done[OperationReply]:
        asked = vectors.request(
            connection,
            request.caller,
            repair,
            request.parts.vectors,
            project_id=data.project_id,
            dry_run=data.dry_run,
        )
        return Done([asked.id], 202, _reply(asked))

    def recall(ids: list[str]) -> OperationReply:
        return _reply(jobs.get(connection, request.caller, ids[0]))

    with request.database.write() as connection:
        return once(request, connection, act=act, recall=recall)


def _project(project: ProjectStatus) -> VectorProject:
    return VectorProject(**{name: getattr(project, name) for name in VectorProject.__struct_fields__})


def _probe(probed: Probed) -> VectorProbe:
    return VectorProbe(ok=probed.ok, stage=probed.stage, error=probed.error, milliseconds=probed.milliseconds)


def _reply(operation: Operation) -> OperationReply:
    shown = structs.asdict(operation)
    view = {name: shown[name] for name in OperationView.__struct_fields__}
    return OperationReply(operation=OperationView(**{**view, "result": operation.result or None}))
