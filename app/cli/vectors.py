"""`vectors`: care of the vector index. Asks the running server where that one has the index, else does it itself."""

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict
from typing import Any

import click
import msgspec
from rich.console import Console
from rich.progress import Progress

from app import logs, vector_index
from app.caller import Caller, server_owner
from app.cli import console
from app.errors import Conflict
from app.services.operations import jobs
from app.services.operations import vectors as service
from app.services.operations.vectors import Repair
from app.services.projects import projects
from app.store.database import Database
from app.vectors.errors import OwnedElsewhere, VectorsUnavailable
from app.vectors.index import VectorIndex

_POLL_SECONDS = 0.2
_WAIT_SECONDS = 30.0
_WATCH_SECONDS = 1.0
_WATCHED = ("memories", "indexed", "pending", "failed", "skipped")

_of_team = click.option("--team", metavar="TEAM", help="Id or slug of the team; all teams when left out.")
_of_project = click.option("--project", metavar="PROJECT", help="Id or slug of one project; needs --team.")
_dry_run = click.option("--dry-run", is_flag=True, help="Count, and change nothing.")


@click.group()
def vectors() -> None:
    """Look after the vector index."""


@vectors.command()
@_of_team
@_of_project
@click.option("--watch", is_flag=True, help="Look every second, until nothing is pending; with --json a line a look.")
@console.as_json
def status(team: str | None, project: str | None, watch: bool, as_json: bool) -> None:
    """Say how the index stands, and how far each project is mirrored."""
    with opened() as (database, index):
        caller, project_id = _reach(database, team, project)
        if watch:
            _watch(database, required(index), caller, project_id, as_json=as_json)
            return
        state = _state(index)
        found = _status(database, index, caller, project_id)
    headline = f"{state}: {found.last_error}" if found.last_error else state
    console.show(
        camel(asdict(found)) | {"state": state},
        as_json=as_json,
        text=lambda _: f"{headline}\n{_project_table(found)}".rstrip(),
    )


@vectors.command()
@console.as_json
def probe(as_json: bool) -> None:
    """Connect, list, embed and query; exits 1 with the stage that failed."""
    with opened() as (database, index):
        probed = _probed(database, required(index))
    times = ", ".join(f"{stage} {took} ms" for stage, took in probed["milliseconds"].items())
    failed = f"{probed['stage']}: {probed['error']}"
    console.show(probed, as_json=as_json, text=lambda _: times if probed["ok"] else failed)
    if not probed["ok"]:
        raise click.exceptions.Exit(1)


@vectors.command()
@_of_team
@_of_project
@_dry_run
@console.as_json
def verify(team: str | None, project: str | None, dry_run: bool, as_json: bool) -> None:
    """Compare the index with every memory by id and content, and repair what differs."""
    _repair("verify", team, project, as_json=as_json, dry_run=dry_run)


@vectors.command()
@_of_team
@_of_project
@click.option("--failed", is_flag=True, help="Only what was set aside.")
@_dry_run
@console.as_json
def backfill(team: str | None, project: str | None, failed: bool, dry_run: bool, as_json: bool) -> None:
    """Mirror every memory again; what is unchanged is not embedded again."""
    _repair("backfill", team, project, as_json=as_json, dry_run=dry_run, only_failed=failed)


@vectors.command()
@_of_team
@_of_project
@_dry_run
@console.as_json
def rebuild(team: str | None, project: str | None, dry_run: bool, as_json: bool) -> None:
    """Make collections anew while the old ones answer."""
    _repair("rebuild", team, project, as_json=as_json, dry_run=dry_run)


def _status(database: Database, index: VectorIndex | None, caller: Caller, project_id: str | None) -> service.Status:
    with database.read() as connection:
        return service.status(connection, caller, index, project_id=project_id)


def _project_table(found: service.Status) -> str:
    columns = ("project_id", "memories", "indexed", "pending", "failed", "skipped", "oldest_pending_seconds")
    return console.table([asdict(one) for one in found.projects], columns)


def _watch(database: Database, index: VectorIndex, caller: Caller, project_id: str | None, *, as_json: bool) -> None:
    """Look at the outbox until it is empty. Not at the index: whoever is to fill it must be able to have it."""
    with progress_bar("mirrored") as progress:
        while True:
            found = _status(database, index, caller, project_id)
            counts = {name: sum(getattr(one, name) for one in found.projects) for name in _WATCHED}
            if as_json:
                click.echo(msgspec.json.encode({**counts, "projects": camel([asdict(one) for one in found.projects])}))
            progress(counts["indexed"] + counts["skipped"], counts["memories"])
            if not counts["pending"]:
                break
            time.sleep(_WATCH_SECONDS)
    if not as_json:
        click.echo(_project_table(found))


def _state(index: VectorIndex | None) -> str:
    """Connect and return how the index stands; `elsewhere` when a running server has the folder, and answers for it."""
    if index is None:
        return "off"
    try:
        index.connect()
    except OwnedElsewhere:
        return "elsewhere"
    except VectorsUnavailable:
        pass  # the state says so
    return index.state


def _probed(database: Database, index: VectorIndex) -> dict[str, Any]:
    """Probe from here, or let the server do it that has the folder."""
    try:
        index.connect()
    except OwnedElsewhere:
        with database.write() as connection:
            asked = jobs.create(connection, server_owner(), service.PROBE_KIND, project_id=None, arguments={})
        return follow(database, server_owner(), asked.id, lambda _done, _total: None)
    except VectorsUnavailable:
        pass  # the probe says at which stage
    return asdict(index.probe())


def _repair(
    repair: Repair, team: str | None, project: str | None, *, as_json: bool, dry_run: bool, only_failed: bool = False
) -> None:
    with opened() as (database, maybe_index):
        index = required(maybe_index)
        caller, project_id = _reach(database, team, project)
        with progress_bar(repair) as progress:
            try:
                index.connect()
            except OwnedElsewhere:
                with database.write() as connection:
                    asked = service.request(
                        connection,
                        caller,
                        repair,
                        index,
                        project_id=project_id,
                        dry_run=dry_run,
                        only_failed=only_failed,
                    )
                result = follow(database, caller, asked.id, progress)
            else:
                with database.read() as connection:
                    sizes = service.reach(connection, caller.team_id, project_id)
                result = service.perform(
                    database,
                    index,
                    repair,
                    sizes,
                    dry_run=dry_run,
                    only_failed=only_failed,
                    progress=progress,
                    everywhere=caller.team_id is None,
                )
    console.show(result, as_json=as_json, text=_as_text)


def follow(database: Database, caller: Caller, operation_id: str, show: jobs.Progress) -> dict[str, Any]:
    """Wait for what a running server was asked to do, and return its result."""
    give_up_at = time.monotonic() + _WAIT_SECONDS
    while True:
        with database.read() as connection:
            now = jobs.get(connection, caller, operation_id)
        show(now.done, now.total)
        if now.status == "done":
            return now.result
        if now.status == "failed":
            raise click.ClickException(now.error or "the server could not do it")
        if now.status == "pending" and time.monotonic() > give_up_at:
            raise click.ClickException(f"no server took it up within {_WAIT_SECONDS:.0f} s; it stays asked for")
        time.sleep(_POLL_SECONDS)


@contextmanager
def opened() -> Iterator[tuple[Database, VectorIndex | None]]:
    """Yield the database and its index; what the index cannot do is named in one line."""
    logs.configure("ERROR", console.loaded().log_format)  # standard output is for the reply
    with console.opened() as database:
        index = vector_index.of(console.loaded(), database)
        try:
            yield database, index
        except VectorsUnavailable as failure:
            raise click.ClickException(str(failure)) from failure
        finally:
            if index is not None:
                index.close()


def required(index: VectorIndex | None) -> VectorIndex:
    """Return the index; raise Conflict when it is off."""
    if index is None:
        raise Conflict("Vectors are off (CMEM_VECTORS or CMEM_EMBEDDER is off).")
    return index


def _reach(database: Database, team: str | None, project: str | None) -> tuple[Caller, str | None]:
    if team is None:
        if project is not None:
            raise click.UsageError("--project needs --team")
        return server_owner(), None
    caller = console.within(database, team)
    if project is None:
        return caller, None
    with database.read() as connection:
        return caller, projects.find(connection, caller, project).id


@contextmanager
def progress_bar(label: str) -> Iterator[jobs.Progress]:
    """Yield what moves a bar on a terminal; scripts see none."""
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task(label, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _as_text(result: dict[str, Any]) -> str:
    counts = {name: value for name, value in result.items() if isinstance(value, int) and name != "dryRun"}
    return ", ".join(f"{value} {name}" for name, value in counts.items())


def camel(value: Any) -> Any:
    """Return a value under the names of the wire."""
    if isinstance(value, dict):
        return {_camel_name(name): camel(inner) for name, inner in value.items()}
    return [camel(inner) for inner in value] if isinstance(value, list) else value


def _camel_name(name: str) -> str:
    first, *others = name.split("_")
    return first + "".join(word.title() for word in others)
