"""`export` and `import`: everything out as NDJSON, and back in."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click
from rich.console import Console
from rich.progress import DownloadColumn, Progress, TextColumn

from app.api.http import strict_json
from app.caller import Caller
from app.cli import console
from app.services.projects import projects
from app.services.transfer import exporting, importing, markdown, ndjson
from app.services.transfer.transfer_records import Record
from app.store.database import Database

_PIECE_BYTES = 1024 * 1024
_SHOWN_WARNINGS = 20

_of_project = click.option("--project", metavar="PROJECT", help="Id or slug of one project; else the whole team.")


@click.command()
@console.of_team
@_of_project
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="A file; standard output when left out.")
@click.option("--format", "form", type=click.Choice(["ndjson", "markdown"]), default="ndjson", show_default=True)
def export(team: str, project: str | None, out: Path | None, form: str) -> None:
    """Take a project or a team out: sessions, events, memories, sources, rules. Deleted things are not in it."""
    with console.opened() as database:
        caller, project_id = _reach(database, team, project)
        with database.write() as connection:
            wanted = exporting.chosen(connection, caller, project_id)
            exporting.note(connection, caller, wanted)
        if form == "markdown":
            lines = markdown.lines(exporting.records(database, caller, wanted))
            pieces: Iterator[bytes] = (line.encode() for line in lines)
        else:
            pieces = exporting.chunks(database, caller, wanted)
        with _opened(out) as file, _progress_bar("exporting") as progress:
            for piece in pieces:
                file.write(piece)
                progress(len(piece))


@click.command("import")
@click.argument("path", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@console.of_team
@_of_project
@click.option("--keep-ids", is_flag=True, help="Give every row the id it had: for moving between servers.")
@console.as_json
def import_(path: Path, team: str, project: str | None, keep_ids: bool, as_json: bool) -> None:
    """Bring an export in; running it again adds only what is missing. `-` reads standard input."""
    with console.opened() as database:
        caller, project_id = _reach(database, team, project)
        run = importing.Import(database, caller, into_project_id=project_id, keep_ids=keep_ids)
        try:
            with click.open_file(str(path), "rb") as file, _progress_bar("importing") as progress:
                batches = ndjson.Batches(_decode, run.report)
                while piece := file.read(_PIECE_BYTES):
                    for batch in batches.feed(piece):
                        run.take(batch)
                    progress(len(piece))
                for batch in batches.rest():
                    run.take(batch)
            report = run.finish()
        finally:
            run.close()
    console.show(report, as_json=as_json, text=_as_text)


def _decode(line: bytes) -> Record:
    decoded: Record = strict_json.decode(line, Record)
    return decoded


def _reach(database: Database, team: str, project: str | None) -> tuple[Caller, str | None]:
    caller = console.within(database, team)
    if project is None:
        return caller, None
    with database.read() as connection:
        return caller, projects.find(connection, caller, project).id


@contextmanager
def _opened(out: Path | None) -> Iterator[IO[bytes]]:
    """Yield where to write; a file is readable by its owner only, and gets its name once it is whole."""
    if out is None:
        yield sys.stdout.buffer
        return
    part = out.with_name(out.name + ".part")
    part.touch(mode=0o600)
    with part.open("wb") as file:
        yield file
    part.replace(out)


@contextmanager
def _progress_bar(label: str) -> Iterator[Callable[[int], None]]:
    columns = (TextColumn(label), DownloadColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=None)
        yield lambda size: bar.advance(task, size)


def _as_text(report: importing.Report) -> str:
    lines = [f"created {report.created}, skipped {report.skipped}, failed {report.failed}"]
    lines += [f"  line {warning.line}: {warning.message}" for warning in report.warnings[:_SHOWN_WARNINGS]]
    return "\n".join(lines)
