"""/v1/projects: the projects that a team works on."""

from litestar import Response, Router, delete, get, patch, post
from litestar.params import JSONBody
from msgspec import UNSET, UnsetType, structs

from app.api.http.idempotency import PostResult, run_once
from app.api.http.parameters import Cursor, Limit, PathId
from app.api.http.request import ApiRequest
from app.api.http.schemas import Label, Name, Object, Slug, Wire, extract_changes, to_view
from app.api.http.thread_pools import reading, writing
from app.caller import MEMORIES_READ, MEMORIES_WRITE, TEAM_ADMIN
from app.services.deletion import bulk_delete
from app.services.projects import projects, stats
from app.store.records import Project


class ProjectCreate(Wire, frozen=True, kw_only=True):
    """A project to create. An omitted slug is derived from the name."""

    name: Name
    slug: Slug | None = None
    root_path: Label | None = None
    metadata: Object | None = None


class ProjectPatch(Wire, frozen=True, kw_only=True):
    """The fields of a project to change."""

    name: Name | UnsetType = UNSET
    slug: Slug | UnsetType = UNSET
    root_path: Label | UnsetType | None = UNSET
    metadata: Object | UnsetType | None = UNSET


class ProjectView(Wire, frozen=True, kw_only=True):
    """A project."""

    id: str
    team_id: str
    name: str
    slug: str
    root_path: str | None
    metadata: Object
    created_at_epoch: int
    updated_at_epoch: int


class ProjectReply(Wire, frozen=True, kw_only=True):
    """One project."""

    project: ProjectView


class ProjectPage(Wire, frozen=True, kw_only=True):
    """A page of projects."""

    projects: list[ProjectView]
    next_cursor: str | None


class VectorLag(Wire, frozen=True, kw_only=True):
    """How far the vector index lags behind the memories."""

    pending: int
    failed: int
    oldest_pending_seconds: int | None


class StatsView(Wire, frozen=True, kw_only=True):
    """What a project contains, in numbers. Days are in UTC; `storageBytes` is the size of the stored text."""

    project_id: str
    memories: int
    sessions: int
    events: int
    by_kind: dict[str, int]
    by_type: dict[str, int]
    by_day: dict[str, int]
    storage_bytes: int
    vectors: VectorLag


class StatsReply(Wire, frozen=True, kw_only=True):
    """The statistics of one project."""

    stats: StatsView


class ProjectDeleted(Wire, frozen=True, kw_only=True):
    """The project was deleted with everything in it."""

    deleted: bool
    id: str


class PurgeCounts(Wire, frozen=True, kw_only=True):
    """How much was deleted."""

    memories: int


class ProjectPurged(Wire, frozen=True, kw_only=True):
    """The memories of the project were deleted, and the project was kept."""

    purged: bool
    project_id: str
    counts: PurgeCounts


@get("/projects", operation_id="listProjects", scope=MEMORIES_READ)
@reading
def list_projects(request: ApiRequest, limit: Limit = 50, cursor: Cursor = None) -> ProjectPage:
    """List the projects that the credential can access, newest first."""
    with request.database.read() as connection:
        page = projects.list_page(connection, request.caller, limit=limit, cursor=cursor)
    return ProjectPage(projects=[_view(project) for project in page.rows], next_cursor=page.next_cursor)


@post("/projects", operation_id="createProject", scope=MEMORIES_WRITE, idempotent=True, located=True)
@writing
def create_project(request: ApiRequest, data: JSONBody[ProjectCreate]) -> Response[ProjectReply]:
    """Create a project. The key must not be bound to a project itself. 409 if the slug or the root path is taken."""

    def perform() -> PostResult[ProjectReply]:
        project = projects.create(connection, request.caller, **structs.asdict(data))
        return PostResult([project.id], 201, _reply(project), {"Location": f"/v1/projects/{project.id}"})

    with request.database.write() as connection:
        return run_once(
            request,
            connection,
            perform=perform,
            replay=lambda ids: _reply(projects.get(connection, request.caller, ids[0])),
        )


@get("/projects/{project_id:str}", operation_id="getProject", scope=MEMORIES_READ)
@reading
def get_project(request: ApiRequest, project_id: PathId) -> ProjectReply:
    """Get a project."""
    with request.database.read() as connection:
        return _reply(projects.get(connection, request.caller, project_id))


@get("/projects/{project_id:str}/stats", operation_id="getProjectStats", scope=MEMORIES_READ)
@reading
def get_project_stats(request: ApiRequest, project_id: PathId) -> StatsReply:
    """Get the statistics of a project: counts by kind, type and day, and how far its vectors lag behind."""
    with request.database.read() as connection:
        counts = stats.of_project(connection, request.caller, project_id)
    return StatsReply(stats=to_view(StatsView, counts, vectors=to_view(VectorLag, counts)))


@patch("/projects/{project_id:str}", operation_id="updateProject", scope=TEAM_ADMIN)
@writing
def update_project(request: ApiRequest, project_id: PathId, data: JSONBody[ProjectPatch]) -> ProjectReply:
    """Update a project."""
    with request.database.write() as connection:
        return _reply(projects.change(connection, request.caller, project_id, extract_changes(data, metadata={})))


@delete("/projects/{project_id:str}", operation_id="deleteProject", scope=TEAM_ADMIN, status_code=200)
@reading  # takes the write lock batch by batch; in the writers' pool it would block all other writes until done
def delete_project(request: ApiRequest, project_id: PathId) -> ProjectDeleted:
    """Delete a project with everything in it: sessions, events, memories and API keys."""
    bulk_delete.remove_project(request.database, request.caller, project_id)
    return ProjectDeleted(deleted=True, id=project_id)


@delete("/projects/{project_id:str}/memory", operation_id="purgeProjectMemory", scope=TEAM_ADMIN, status_code=200)
@reading  # takes the write lock batch by batch; in the writers' pool it would block all other writes until done
def purge_project_memory(request: ApiRequest, project_id: PathId) -> ProjectPurged:
    """Delete all memories of a project. The project itself is kept."""
    removed = bulk_delete.remove_memories(request.database, request.caller, project_id)
    return ProjectPurged(purged=True, project_id=project_id, counts=PurgeCounts(memories=removed))


router = Router(
    "/",
    route_handlers=[
        list_projects,
        create_project,
        get_project,
        get_project_stats,
        update_project,
        delete_project,
        purge_project_memory,
    ],
    tags=["projects"],
)


def _view(project: Project) -> ProjectView:
    return ProjectView(**structs.asdict(project))


def _reply(project: Project) -> ProjectReply:
    return ProjectReply(project=_view(project))
