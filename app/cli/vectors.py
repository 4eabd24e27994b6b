"""`vectors`: checks and repairs the vector index, by asking the server when one has the index open."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any, Final

import click
import msgspec

from app import logs, vector_index
from app.caller import Caller, server_owner
from app.cli import console, progress
from app.errors import Conflict
from app.services.operations import jobs
from app.services.operations import vectors as service
from app.services.operations.vectors import Repair
from app.store.database import Database
from app.vectors.errors import OwnedElsewhere, VectorsUnavailable
from app.vectors.index import VectorIndex

_POLL_SECONDS: Final = 0.2
_WAIT_SECONDS: Final = 30.0
_WATCH_SECONDS: Final = 1.0
_WATCHED: Final = ("memories", "indexed", "pending", "failed", "skipped")

_of_team = click.option("--team", metavar="TEAM", help="Id or slug of the team; all teams when omitted.")
_of_project = click.option("--project", metavar="PROJECT", help="Id or slug of one project; needs --team.")


@click.group()
def vectors() -> None:
    """Check and repair the vector index."""


@vectors.command()
@_of_team
@_of_project
@click.option(
    "--watch", is_flag=True, help="Repeat every second until nothing is pending; --json prints a line each time."
)
@console.as_json
def status(team: str | None, project: str | None, watch: bool, as_json: bool) -> None:
    """Show the state of the index, and how far each project is indexed."""
    with open_index() as (database, index):
        caller, project_id = _scope(database, team, project)
        if watch:
            _watch(database, require_index(index), caller, project_id, as_json=as_json)
            return
        state = _connect(index)
        shown = _status(database, index, caller, project_id)
    headline = f"{state}: {shown.last_error}" if shown.last_error else state
    console.show(
        console.camel(asdict(shown)) | {"state": state},
        as_json=as_json,
        text=lambda _: f"{headline}\n{_project_table(shown)}".rstrip(),
    )


@vectors.command()
@console.as_json
def probe(as_json: bool) -> None:
    """Connect, list, embed and query. Exits 1 with the stage that failed."""
    with open_index() as (database, index):
        outcome = _probe(database, require_index(index))
    times = ", ".join(f"{stage} {took} ms" for stage, took in outcome["milliseconds"].items())
    failed = f"{outcome['stage']}: {outcome['error']}"
    console.show(outcome, as_json=as_json, text=lambda _: times if outcome["ok"] else failed)
    if not outcome["ok"]:
        raise click.exceptions.Exit(1)


@vectors.command()
@_of_team
@_of_project
@console.dry_run
@console.as_json
def verify(team: str | None, project: str | None, dry_run: bool, as_json: bool) -> None:
    """Compare the index with every memory by id and content, and repair what differs."""
    _repair("verify", team, project, as_json=as_json, dry_run=dry_run)


@vectors.command()
@_of_team
@_of_project
@click.option("--failed", is_flag=True, help="Only memories that could not be indexed before.")
@console.dry_run
@console.as_json
def backfill(team: str | None, project: str | None, failed: bool, dry_run: bool, as_json: bool) -> None:
    """Index every memory again. Unchanged ones are not embedded again."""
    _repair("backfill", team, project, as_json=as_json, dry_run=dry_run, only_failed=failed)


@vectors.command()
@_of_team
@_of_project
@console.dry_run
@console.as_json
def rebuild(team: str | None, project: str | None, dry_run: bool, as_json: bool) -> None:
    """Build new collections while the old ones answer."""
    _repair("rebuild", team, project, as_json=as_json, dry_run=dry_run)


def _status(database: Database, index: VectorIndex | None, caller: Caller, project_id: str | None) -> service.Status:
    with database.read() as connection:
        return service.status(connection, caller, index, project_id=project_id)


def _project_table(status: service.Status) -> str:
    columns = ("project_id", "memories", "indexed", "pending", "failed", "skipped", "oldest_pending_seconds")
    return console.table([asdict(project) for project in status.projects], columns)


def _watch(database: Database, index: VectorIndex, caller: Caller, project_id: str | None, *, as_json: bool) -> None:
    """Poll the outbox until it is empty. The index is not opened: a server that starts later must be able to."""
    with progress.counting("indexed") as advance:
        while True:
            status = _status(database, index, caller, project_id)
            counts = {name: sum(getattr(project, name) for project in status.projects) for name in _WATCHED}
            if as_json:
                projects = console.camel([asdict(project) for project in status.projects])
                click.echo(msgspec.json.encode({**counts, "projects": projects}))
            advance(counts["indexed"] + counts["skipped"], counts["memories"])
            if not counts["pending"]:
                break
            time.sleep(_WATCH_SECONDS)
    if not as_json:
        click.echo(_project_table(status))


def _connect(index: VectorIndex | None) -> str:
    """Connect and return the index's state; `elsewhere` when a running server has the folder and answers for it."""
    if index is None:
        return "off"
    try:
        index.connect()
    except OwnedElsewhere:
        return "elsewhere"
    except VectorsUnavailable:
        pass  # the state says so
    return index.state


def _probe(database: Database, index: VectorIndex) -> dict[str, Any]:
    """Probe the index, or let the server that has the folder do it."""
    try:
        index.connect()
    except OwnedElsewhere:
        with database.write() as connection:
            operation = jobs.create(connection, server_owner(), service.PROBE_KIND, project_id=None, arguments={})
        return wait_for(database, server_owner(), operation.id, lambda _done, _total: None)
    except VectorsUnavailable:
        pass  # the probe says at which stage
    return asdict(index.probe())


def _repair(
    repair: Repair, team: str | None, project: str | None, *, as_json: bool, dry_run: bool, only_failed: bool = False
) -> None:
    with open_index() as (database, maybe_index):
        index = require_index(maybe_index)
        caller, project_id = _scope(database, team, project)
        with progress.counting(repair) as advance:
            try:
                index.connect()
            except OwnedElsewhere:
                with database.write() as connection:
                    operation = service.request(
                        connection,
                        caller,
                        repair,
                        index,
                        project_id=project_id,
                        dry_run=dry_run,
                        only_failed=only_failed,
                    )
                result = wait_for(database, caller, operation.id, advance)
            else:
                with database.read() as connection:
                    sizes = service.project_sizes(connection, caller.team_id, project_id)
                result = service.perform(
                    database,
                    index,
                    repair,
                    sizes,
                    dry_run=dry_run,
                    only_failed=only_failed,
                    progress=advance,
                    everywhere=caller.team_id is None,
                )
    console.show(result, as_json=as_json, text=_as_text)


def wait_for(database: Database, caller: Caller, operation_id: str, advance: jobs.Progress) -> dict[str, Any]:
    """Wait for an operation that a running server was asked to do, and return its result."""
    give_up_at = time.monotonic() + _WAIT_SECONDS
    while True:
        with database.read() as connection:
            operation = jobs.get(connection, caller, operation_id)
        advance(operation.done, operation.total)
        if operation.status == "done":
            return operation.result
        if operation.status == "failed":
            raise click.ClickException(operation.error or "The server failed to do it.")
        if operation.status == "pending" and time.monotonic() > give_up_at:
            raise click.ClickException(f"No server picked up the job within {_WAIT_SECONDS:.0f} s; it remains queued.")
        time.sleep(_POLL_SECONDS)


@contextmanager
def open_index() -> Iterator[tuple[Database, VectorIndex | None]]:
    """Yield the database and its index; report in one line what the index cannot do."""
    settings = console.load_settings()
    logs.configure("ERROR", settings.log_format)  # standard output is for the reply
    with console.open_database() as database:
        index = vector_index.of(settings, database)
        try:
            yield database, index
        except VectorsUnavailable as failure:
            raise click.ClickException(str(failure)) from failure
        finally:
            if index is not None:
                index.close()


def require_index(index: VectorIndex | None) -> VectorIndex:
    """Return the index. Raises Conflict when it is off."""
    if index is None:
        raise Conflict("Vectors are off (CMEM_VECTORS or CMEM_EMBEDDER is off).")
    return index


def _scope(database: Database, team: str | None, project: str | None) -> tuple[Caller, str | None]:
    if team is not None:
        return console.caller_and_project(database, team, project)
    if project is not None:
        raise click.UsageError("--project needs --team.")
    return server_owner(), None


def _as_text(result: dict[str, Any]) -> str:
    counts = {name: value for name, value in result.items() if isinstance(value, int) and name != "dryRun"}
    return ", ".join(f"{value} {name}" for name, value in counts.items())
