"""The vector index as seen from outside: its status, and the repairs that can be requested."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from sqlalchemy import Connection

from app.caller import MEMORIES_READ, SERVER_ADMIN, TEAM_ADMIN, Caller, server_owner
from app.clock import now_ms
from app.errors import Conflict
from app.services.operations import jobs, vector_adoption
from app.services.operations.jobs import Handler, Operation, Progress
from app.services.projects import projects
from app.store import outbox
from app.store.database import Database
from app.store.outbox import Backlog, ProjectSize
from app.vectors import collection_names
from app.vectors.errors import OwnedElsewhere
from app.vectors.index import Index, VectorIndex, VectorState
from app.vectors.sync.repair import Differences

Repair = Literal["backfill", "verify", "rebuild"]
REPAIRS: Final[tuple[Repair, ...]] = ("backfill", "verify", "rebuild")
_KIND_PREFIX: Final = "vectors."
PROBE_KIND: Final = "vectors.probe"
_VACUUM_KIND: Final = "vectors.vacuum"


@dataclass(frozen=True, slots=True, kw_only=True)
class ProjectStatus:
    """How far a project is indexed, in memories. `skipped` memories have no text to embed."""

    project_id: str
    collection: str
    memories: int
    indexed: int
    pending: int
    failed: int
    skipped: int
    oldest_pending_seconds: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Status:
    """The status of the index, which is read without waiting for it."""

    mode: Literal["embedded", "http", "off"]
    state: VectorState
    model: str | None
    backoff_seconds: float
    last_error: str | None
    projects: list[ProjectStatus]


def status(connection: Connection, caller: Caller, index: Index | None, *, project_id: str | None = None) -> Status:
    """Return the status of the index, and of the projects in the caller's scope; the server itself sees all of them."""
    sizes = _in_scope(connection, caller, project_id)
    return Status(
        mode="off" if index is None else index.mode,
        state="off" if index is None else index.state,
        model=None if index is None else index.embedder.model_id,
        backoff_seconds=0.0 if index is None else round(index.backoff_seconds, 1),
        last_error=None if index is None else index.last_error,
        projects=_project_statuses(connection, sizes, project_id),
    )


def request(
    connection: Connection,
    caller: Caller,
    repair: Repair,
    index: Index | None,
    *,
    project_id: str | None,
    dry_run: bool,
    only_failed: bool = False,
) -> Operation:
    """Request a repair of one project, or of all in the caller's scope. Raises Conflict when vectors are off."""
    caller.require(SERVER_ADMIN if caller.team_id is None else TEAM_ADMIN)
    if project_id is not None:
        projects.require(connection, caller, project_id)
    elif caller.project_id is not None:
        project_id = caller.project_id
    if index is None:
        raise Conflict("Vectors are switched off (CMEM_VECTORS=off): there is nothing to repair.")
    arguments = {"dryRun": dry_run, "onlyFailed": only_failed}
    return jobs.create(connection, caller, _KIND_PREFIX + repair, project_id=project_id, arguments=arguments)


def request_vacuum(database: Database) -> None:
    """Request a vacuum of the index by the server that owns it, after the queued repairs: they cannot run meanwhile."""
    with database.write() as connection:
        jobs.create(connection, server_owner(), _VACUUM_KIND, project_id=None, arguments={})


def handlers(database: Database, index: VectorIndex) -> dict[str, Handler]:
    """Return the handler of each kind of vector operation."""
    repairs = {_KIND_PREFIX + repair: _repair_handler(database, index, repair) for repair in REPAIRS}
    return {
        **repairs,
        PROBE_KIND: lambda _operation, _progress: asdict(index.probe()),
        _VACUUM_KIND: lambda _operation, progress: _vacuum(index, progress),
        vector_adoption.KIND: vector_adoption.handler(database, index),
    }


def perform(
    database: Database,
    index: VectorIndex,
    repair: Repair,
    sizes: Iterable[ProjectSize],
    *,
    dry_run: bool,
    only_failed: bool,
    progress: Progress,
    everywhere: bool = False,
) -> dict[str, Any]:
    """Run a repair now, project by project; return its counts as the API shows them. Raises VectorsUnavailable.

    `everywhere`: the repair covers the whole server, so that verifying also drops orphan collections.
    """
    selected = list(sizes)
    total = sum(size.memories for size in selected)
    before = 0
    results = []
    for size in selected:
        start = before

        def advance(done: int, start: int = start) -> None:
            progress(start + done, total)

        results.append(
            _repair_project(database, index, repair, size, advance, dry_run=dry_run, only_failed=only_failed)
        )
        before += size.memories
        progress(before, total)
    counts = {name: sum(result.get(name, 0) for result in results) for name in _COUNTS}
    drops_orphans = everywhere and repair == "verify"
    dropped = {"ownerless": index.drop_orphan_collections(dry_run=dry_run)} if drops_orphans else {}
    return {"dryRun": dry_run, **counts, **dropped, "projects": results}


def project_sizes(connection: Connection, team_id: str | None, project_id: str | None) -> list[ProjectSize]:
    """Return the projects of a team, or of all teams when `team_id` is None; only `project_id` if that is given."""
    sizes = outbox.sizes(connection, project_id)
    return [size for size in sizes if team_id is None or size.team_id == team_id]


_COUNTS: Final = ("memories", "documents", "missing", "stale", "ghost", "duplicate", "pending", "failed")
"""The counts of a result, by the names that the API gives them."""


def _repair_project(
    database: Database,
    index: VectorIndex,
    repair: Repair,
    size: ProjectSize,
    advance: Callable[[int], None],
    *,
    dry_run: bool,
    only_failed: bool,
) -> dict[str, Any]:
    if dry_run or repair == "verify":
        return _counts(size, index.repair.verify(size.project_id, advance, dry_run=dry_run))
    if repair == "rebuild":
        index.repair.rebuild(size.project_id, advance)
    else:
        with database.write() as connection:
            outbox.retry_failed(connection, size.project_id)
        if not only_failed:
            index.mirror.enqueue_project(size.project_id)
        index.mirror.drain(advance)
    with database.read() as connection:
        backlog = outbox.backlogs(connection, size.project_id).get(size.project_id)
    return {
        "projectId": size.project_id,
        "memories": size.memories,
        "pending": backlog.pending if backlog else 0,
        "failed": backlog.failed if backlog else 0,
    }


def _counts(size: ProjectSize, differences: Differences) -> dict[str, Any]:
    return {
        "projectId": size.project_id,
        "memories": size.memories,
        "documents": differences.documents,
        "missing": differences.missing,
        "stale": differences.stale,
        "ghost": differences.orphans,
        "duplicate": differences.duplicate,
        "pending": differences.pending,
    }


def _repair_handler(database: Database, index: VectorIndex, repair: Repair) -> Handler:
    def run(operation: Operation, progress: Progress) -> dict[str, Any]:
        with database.read() as connection:
            sizes = project_sizes(connection, operation.team_id, operation.project_id)
        return perform(
            database,
            index,
            repair,
            sizes,
            dry_run=bool(operation.arguments.get("dryRun")),
            only_failed=bool(operation.arguments.get("onlyFailed")),
            progress=progress,
            everywhere=operation.team_id is None and operation.project_id is None,
        )

    return run


def _vacuum(index: VectorIndex, progress: Progress) -> dict[str, Any]:
    """Vacuum the index; where several servers share a folder, another one may own it and do nothing here."""
    try:
        index.vacuum(lambda: progress(0, None))
    except OwnedElsewhere:
        return {"vacuumed": False}
    return {"vacuumed": True}


def _in_scope(connection: Connection, caller: Caller, project_id: str | None) -> list[ProjectSize]:
    if caller.team_id is None:
        caller.require(SERVER_ADMIN)
        return project_sizes(connection, None, project_id)
    caller.require(MEMORIES_READ)
    if project_id is not None:
        projects.require(connection, caller, project_id)
    return project_sizes(connection, caller.team_id, project_id or caller.project_id)


def _project_statuses(
    connection: Connection, sizes: Iterable[ProjectSize], project_id: str | None
) -> list[ProjectStatus]:
    backlogs = outbox.backlogs(connection, project_id)
    wordless = outbox.count_textless(connection, project_id)
    return [_project_status(size, backlogs.get(size.project_id), wordless.get(size.project_id, 0)) for size in sizes]


def _project_status(size: ProjectSize, backlog: Backlog | None, skipped: int) -> ProjectStatus:
    oldest = backlog.oldest_enqueued_at_epoch if backlog else None
    waiting = backlog.upserts if backlog else 0
    return ProjectStatus(
        project_id=size.project_id,
        collection=collection_names.live(size.project_id),
        memories=size.memories,
        indexed=max(0, size.memories - waiting - skipped),
        pending=backlog.pending if backlog else 0,
        failed=backlog.failed if backlog else 0,
        skipped=skipped,
        oldest_pending_seconds=None if oldest is None else max(0, (now_ms() - oldest) // 1_000),
    )
