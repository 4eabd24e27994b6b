"""/v1/projects: what a team works on."""

from litestar import Response, Router, delete, get, patch, post
from litestar.params import JSONBody
from msgspec import UNSET, UnsetType, structs

from app.api.http.idempotency import Done, once
from app.api.http.parameters import Cursor, Limit, PathId
from app.api.http.request import ApiRequest
from app.api.http.schemas import Label, Name, Object, Slug, Wire
from app.api.http.thread_pools import reading, writing
from app.caller import MEMORIES_READ, MEMORIES_WRITE, TEAM_ADMIN
from app.services.deletion import bulk_delete
from app.services.projects import projects, stats
from app.store.records import Project


class ProjectCreate(Wire, frozen=True, kw_only=True):
    """A project to make; a slug that is left out is made from the name."""

    name: Name
    slug: Slug | None = None
    root_path: Label | None = None
    metadata: Object | None = None


class ProjectPatch(Wire, frozen=True, kw_only=True):
    """What to change of a project."""

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
    """What the vector index still waits for."""

    pending: int
    failed: int
    oldest_pending_seconds: int | None


class StatsView(Wire, frozen=True, kw_only=True):
    """What a project holds, in numbers. Days are UTC, bytes those of the stored text."""

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
    """The numbers of one project."""

    stats: StatsView


class ProjectDeleted(Wire, frozen=True, kw_only=True):
    """The project is gone, with everything of it."""

    deleted: bool
    id: str


class PurgeCounts(Wire, frozen=True, kw_only=True):
    """How much was removed."""

    memories: int


class ProjectPurged(Wire, frozen=True, kw_only=True):
    """The memories of the project are gone; the project stays."""

    purged: bool
    project_id: str
    counts: PurgeCounts


@get("/projects", operation_id="listProjects", scope=MEMORIES_READ)
@reading
def list_projects(request: ApiRequest, limit: Limit = 50, cursor: Cursor = None) -> ProjectPage:
    """List the projects that the credential reaches, newest first."""
    with request.database.read() as connection:
        page = projects.listing(connection, request.caller, limit=limit, cursor=cursor)
    return ProjectPage(projects=[_view(project) for project in page.rows], next_cursor=page.next_cursor)


@post("/projects", operation_id="createProject", scope=MEMORIES_WRITE, idempotent=True, located=True)
@writing
def create_project(request: ApiRequest, data: JSONBody[ProjectCreate]) -> Response[ProjectReply]:
    """Make a project; for team keys only. 409 when the slug or the root path is taken."""

    def act() -> Done[ProjectReply]:
        project = projects.create(connection, request.caller, **structs.asdict(data))
        return Done([project.id], 201, _reply(project), {"Location": f"/v1/projects/{project.id}"})

    with request.database.write() as connection:
        return once(
            request,
            connection,
            act=act,
            recall=lambda ids: _reply(projects.get(connection, request.caller, ids[0])),
        )


@get("/projects/{project_id:str}", operation_id="getProject", scope=MEMORIES_READ)
@reading
def get_project(request: ApiRequest, project_id: PathId) -> ProjectReply:
    """Read a project."""
    with request.database.read() as connection:
        return _reply(projects.get(connection, request.caller, project_id))


@get("/projects/{project_id:str}/stats", operation_id="getProjectStats", scope=MEMORIES_READ)
@reading
def get_project_stats(request: ApiRequest, project_id: PathId) -> StatsReply:
    """Count what a project holds, by kind, type and day, and how far its vectors lag behind."""
    with request.database.read() as connection:
        found = stats.of_project(connection, request.caller, project_id)
    lag = VectorLag(pending=found.pending, failed=found.failed, oldest_pending_seconds=found.oldest_pending_seconds)
    counts = {name: getattr(found, name) for name in StatsView.__struct_fields__ if name != "vectors"}
    return StatsReply(stats=StatsView(**counts, vectors=lag))


@patch("/projects/{project_id:str}", operation_id="updateProject", scope=TEAM_ADMIN)
@writing
def update_project(request: ApiRequest, project_id: PathId, data: JSONBody[ProjectPatch]) -> ProjectReply:
    """Change a project."""
    changes = {name: value for name, value in structs.asdict(data).items() if value is not UNSET}
    if "metadata" in changes:
        changes["metadata"] = changes["metadata"] or {}
    with request.database.write() as connection:
        return _reply(projects.change(connection, request.caller, project_id, changes))


@delete("/projects/{project_id:str}", operation_id="deleteProject", scope=TEAM_ADMIN, status_code=200)
@reading  # it takes the write lock batch by batch: among the writers it would keep them out until it is done
def delete_project(request: ApiRequest, project_id: PathId) -> ProjectDeleted:
    """Delete a project with everything of it: sessions, events, memories, its keys."""
    bulk_delete.remove_project(request.database, request.caller, project_id)
    return ProjectDeleted(deleted=True, id=project_id)


@delete("/projects/{project_id:str}/memory", operation_id="purgeProjectMemory", scope=TEAM_ADMIN, status_code=200)
@reading  # it takes the write lock batch by batch: among the writers it would keep them out until it is done
def purge_project_memory(request: ApiRequest, project_id: PathId) -> ProjectPurged:
    """Delete every memory of a project; the project stays."""
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
