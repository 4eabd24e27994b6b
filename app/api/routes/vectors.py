"""/v1/vectors and /v1/operations: the state of the vector index, and the jobs that repair it."""

from functools import partial
from typing import Annotated, Final, Literal

from litestar import Response, Router, get, post
from litestar.params import JSONBody, QueryParameter

from app.api.http.idempotency import PostResult, run_once
from app.api.http.parameters import PathId, ProjectId
from app.api.http.request import ApiRequest
from app.api.http.schemas import Id, Object, Wire, to_view
from app.api.http.thread_pools import reading, writing
from app.caller import MEMORIES_READ, SERVER_ADMIN, TEAM_ADMIN
from app.services.operations import jobs, vectors
from app.services.operations.jobs import Operation, Status
from app.services.operations.vectors import Repair
from app.vectors.index import VectorState
from app.vectors.probe import Stage

Deep = Annotated[
    int,
    QueryParameter(
        name="deep", ge=0, le=1, description="`1`: also test the index by connecting, listing, embedding and querying."
    ),
]


class VectorRepair(Wire, frozen=True, kw_only=True):
    """What to repair: one project, or all that the credential can access. `dryRun` counts without changing anything."""

    project_id: Id | None = None
    dry_run: bool = False


class VectorProject(Wire, frozen=True, kw_only=True):
    """How many of a project's memories are indexed. `skipped` ones have no text to embed."""

    project_id: str
    collection: str
    memories: int
    indexed: int
    pending: int
    failed: int
    skipped: int
    oldest_pending_seconds: int | None


class VectorProbe(Wire, frozen=True, kw_only=True):
    """The result of a test. `stage` is `done` or the stage that failed; `milliseconds` are by stage."""

    ok: bool
    stage: Stage
    error: str | None
    milliseconds: dict[str, float]


class VectorStatus(Wire, frozen=True, kw_only=True):
    """The state of the vector index."""

    mode: Literal["embedded", "http", "off"]
    state: VectorState
    model: str | None
    backoff_seconds: float
    last_error: str | None
    projects: list[VectorProject]
    probe: VectorProbe | None


class OperationView(Wire, frozen=True, kw_only=True):
    """A background job. `result` holds its counts once it is done."""

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
    """Get the state of the vector index and of each project in it. Only `deep=1` waits for the index."""
    index = request.app_state.vectors
    with request.database.read() as connection:
        status = vectors.status(connection, request.caller, index, project_id=project_id)
    return VectorStatus(
        mode=status.mode,
        state=status.state,
        model=status.model,
        backoff_seconds=status.backoff_seconds,
        last_error=status.last_error,
        projects=[to_view(VectorProject, project) for project in status.projects],
        probe=to_view(VectorProbe, index.probe()) if deep and index else None,
    )


_post_repair: Final = partial(post, scope=TEAM_ADMIN, or_scope=SERVER_ADMIN, idempotent=True, status_code=202)


@_post_repair("/vectors/backfill", operation_id="backfillVectors")
@writing
def backfill_vectors(request: ApiRequest, data: JSONBody[VectorRepair]) -> Response[OperationReply]:
    """Index every memory again, including those that failed before. Unchanged text is not embedded again."""
    return _start_repair(request, "backfill", data)


@_post_repair("/vectors/rebuild", operation_id="rebuildVectors")
@writing
def rebuild_vectors(request: ApiRequest, data: JSONBody[VectorRepair]) -> Response[OperationReply]:
    """Build new collections while the old ones keep serving searches."""
    return _start_repair(request, "rebuild", data)


@_post_repair("/vectors/verify", operation_id="verifyVectors")
@writing
def verify_vectors(request: ApiRequest, data: JSONBody[VectorRepair]) -> Response[OperationReply]:
    """Compare the index with the memories by id and content, and repair the differences."""
    return _start_repair(request, "verify", data)


@get("/operations/{operation_id:str}", operation_id="getOperation", scope=TEAM_ADMIN, or_scope=SERVER_ADMIN)
@reading
def get_operation(request: ApiRequest, operation_id: PathId) -> OperationReply:
    """Get an operation: its progress and its result."""
    with request.database.read() as connection:
        return _reply(jobs.get(connection, request.caller, operation_id))


router = Router(
    "/",
    route_handlers=[get_vector_status, backfill_vectors, rebuild_vectors, verify_vectors, get_operation],
    tags=["vectors"],
)


def _start_repair(request: ApiRequest, repair: Repair, data: VectorRepair) -> Response[OperationReply]:
    def perform() -> PostResult[OperationReply]:
        operation = vectors.request(
            connection,
            request.caller,
            repair,
            request.app_state.vectors,
            project_id=data.project_id,
            dry_run=data.dry_run,
        )
        return PostResult([operation.id], 202, _reply(operation))

    def replay(ids: list[str]) -> OperationReply:
        return _reply(jobs.get(connection, request.caller, ids[0]))

    with request.database.write() as connection:
        return run_once(request, connection, perform=perform, replay=replay)


def _reply(operation: Operation) -> OperationReply:
    return OperationReply(operation=to_view(OperationView, operation, result=operation.result or None))
