"""The vector index as people see it: how it stands, and the repairs that may be asked for."""

from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, fields
from typing import Any, Final, Literal

from sqlalchemy import Connection

from app.caller import MEMORIES_READ, SERVER_ADMIN, TEAM_ADMIN, Caller, server_owner
from app.clock import now_ms
from app.errors import Conflict
from app.services.operations import jobs, vector_adoption
from app.services.operations.jobs import Operation, Progress, Verb
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
    """How far a project is mirrored, in memories. `skipped` have no text that could be embedded."""

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
    """How the index stands. Never waits for it."""

    mode: Literal["embedded", "http", "off"]
    state: VectorState
    model: str | None
    backoff_seconds: float
    last_error: str | None
    projects: list[ProjectStatus]


def status(connection: Connection, caller: Caller, index: Index | None, *, project_id: str | None = None) -> Status:
    """Return the state of the index, and of the projects that the caller reaches; the server itself sees them all."""
    reached = _reached(connection, caller, project_id)
    return Status(
        mode="off" if index is None else index.mode,
        state="off" if index is None else index.state,
        model=None if index is None else index.embedder.model_id,
        backoff_seconds=0.0 if index is None else round(index.backoff_seconds, 1),
        last_error=None if index is None else index.last_error,
        projects=_project_statuses(connection, reached, project_id),
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
    """Ask for a repair of one project, or of all that the caller has. Raises Conflict when vectors are off."""
    caller.require(SERVER_ADMIN if caller.team_id is None else TEAM_ADMIN)
    if project_id is not None:
        projects.require(connection, caller, project_id)
    elif caller.project_id is not None:
        project_id = caller.project_id
    if index is None:
        raise Conflict("Vectors are off (CMEM_VECTORS=off): there is nothing to repair.")
    arguments = {"dryRun": dry_run, "onlyFailed": only_failed}
    return jobs.create(connection, caller, _KIND_PREFIX + repair, project_id=project_id, arguments=arguments)


def request_vacuum(database: Database) -> None:
    """Have the index vacuumed by its server, in turn with the repairs, which could not go on meanwhile."""
    with database.write() as connection:
        jobs.create(connection, server_owner(), _VACUUM_KIND, project_id=None, arguments={})


def verbs(database: Database, index: VectorIndex) -> dict[str, Verb]:
    """Return what does the vector operations."""
    repairs = {_KIND_PREFIX + repair: _verb(database, index, repair) for repair in REPAIRS}
    return {
        **repairs,
        PROBE_KIND: lambda _operation, _progress: asdict(index.probe()),
        _VACUUM_KIND: lambda _operation, progress: _vacuumed(index, progress),
        vector_adoption.KIND: vector_adoption.verb(database, index),
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
    """Do a repair now, project by project; return its counts as they travel. Raises VectorsUnavailable.

    `everywhere` says that it is about the whole server: then verifying drops collections that no project owns, too.
    """
    chosen = list(sizes)
    total = sum(size.memories for size in chosen)
    before = 0
    results = []
    for size in chosen:
        start = before

        def advance(done: int, start: int = start) -> None:
            progress(start + done, total)

        results.append(_one(database, index, repair, size, advance, dry_run=dry_run, only_failed=only_failed))
        before += size.memories
        progress(before, total)
    counts = {name: sum(result.get(name, 0) for result in results) for name in _COUNTS}
    dropped = {"ownerless": index.drop_ownerless(dry_run=dry_run)} if everywhere and repair == "verify" else {}
    return {"dryRun": dry_run, **counts, **dropped, "projects": results}


def reach(connection: Connection, team_id: str | None, project_id: str | None) -> list[ProjectSize]:
    """Return the projects of a team (of all without one), or the one that is named."""
    found = outbox.sizes(connection, project_id)
    return [size for size in found if team_id is None or size.team_id == team_id]


_COUNTS: Final = ("memories", "documents", "missing", "stale", "ghost", "duplicate", "pending", "failed")


def _one(
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


def _counts(size: ProjectSize, found: Differences) -> dict[str, Any]:
    names = [field.name for field in fields(found) if field.name in _COUNTS]
    return {"projectId": size.project_id, "memories": size.memories, **{name: getattr(found, name) for name in names}}


def _verb(database: Database, index: VectorIndex, repair: Repair) -> Verb:
    def run(operation: Operation, progress: Progress) -> dict[str, Any]:
        with database.read() as connection:
            sizes = reach(connection, operation.team_id, operation.project_id)
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


def _vacuumed(index: VectorIndex, progress: Progress) -> dict[str, Any]:
    """Vacuum; of several servers beside one folder the one that has it may not be the one that was asked."""
    try:
        index.vacuum(lambda: progress(0, None))
    except OwnedElsewhere:
        return {"vacuumed": False}
    return {"vacuumed": True}


def _reached(connection: Connection, caller: Caller, project_id: str | None) -> list[ProjectSize]:
    if caller.team_id is None:
        caller.require(SERVER_ADMIN)
        return reach(connection, None, project_id)
    caller.require(MEMORIES_READ)
    if project_id is not None:
        projects.require(connection, caller, project_id)
    return reach(connection, caller.team_id, project_id or caller.project_id)


def _project_statuses(
    connection: Connection, sizes: Iterable[ProjectSize], project_id: str | None
) -> list[ProjectStatus]:
    backlogs = outbox.backlogs(connection, project_id)
    wordless = outbox.wordless(connection, project_id)
    return [_project_status(size, backlogs.get(size.project_id), wordless.get(size.project_id, 0)) for size in sizes]


def _project_status(size: ProjectSize, backlog: Backlog | None, skipped: int) -> ProjectStatus:
    oldest = backlog.oldest_enqueued_at_epoch if backlog else None
    waiting = backlog.upserts if backlog else 0
    return ProjectStatus(
        project_id=size.project_id,
        collection=collection_names.serving(size.project_id),
        memories=size.memories,
        indexed=max(0, size.memories - waiting - skipped),
        pending=backlog.pending if backlog else 0,
        failed=backlog.failed if backlog else 0,
        skipped=skipped,
        oldest_pending_seconds=None if oldest is None else max(0, (now_ms() - oldest) // 1_000),
    )
