"""`export` and `import`: everything as NDJSON, and back."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

import click
from rich.progress import DownloadColumn, TextColumn

from app.cli import console, progress
from app.services.shared import strict_json
from app.services.transfer import exporting, importing, markdown, ndjson
from app.services.transfer.transfer_records import Record

_CHUNK_BYTES = 1024 * 1024
_SHOWN_WARNINGS = 20

_of_project = click.option("--project", metavar="PROJECT", help="Id or slug of one project; else the whole team.")


@click.command()
@console.of_team
@_of_project
@click.option("--out", type=click.Path(dir_okay=False, path_type=Path), help="Output file; else standard output.")
@click.option("--format", "form", type=click.Choice(["ndjson", "markdown"]), default="ndjson", show_default=True)
def export(team: str, project: str | None, out: Path | None, form: str) -> None:
    """Export a project or a team. Sessions, events, memories, sources and rules, without what was deleted."""
    with console.open_database() as database:
        caller, project_id = console.caller_and_project(database, team, project)
        with database.write() as connection:
            selected = exporting.select_projects(connection, caller, project_id)
            exporting.record_export(connection, caller, selected)
        if form == "markdown":
            lines = markdown.lines(exporting.records(database, caller, selected))
            chunks: Iterator[bytes] = (line.encode() for line in lines)
        else:
            chunks = exporting.chunks(database, caller, selected)
        with _open_output(out) as file, _progress_bar("exporting") as advance:
            for chunk in chunks:
                file.write(chunk)
                advance(len(chunk))


@click.command("import")
@click.argument("path", type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path))
@console.of_team
@_of_project
@click.option("--keep-ids", is_flag=True, help="Keep the ids of all rows, to move between servers.")
@console.as_json
def import_(path: Path, team: str, project: str | None, keep_ids: bool, as_json: bool) -> None:
    """Import an export. Running it again adds only what is missing; the PATH `-` is standard input."""
    with console.open_database() as database:
        caller, project_id = console.caller_and_project(database, team, project)
        run = importing.Import(database, caller, into_project_id=project_id, keep_ids=keep_ids)
        try:
            with click.open_file(str(path), "rb") as file, _progress_bar("importing") as advance:
                batches = ndjson.Batches(_decode, run.report)
                while chunk := file.read(_CHUNK_BYTES):
                    for batch in batches.feed(chunk):
                        run.import_batch(batch)
                    advance(len(chunk))
                for batch in batches.rest():
                    run.import_batch(batch)
            report = run.finish()
        finally:
            run.close()
    console.show(report, as_json=as_json, text=_as_text)


def _decode(line: bytes) -> Record:
    decoded: Record = strict_json.decode(line, Record)
    return decoded


@contextmanager
def _open_output(out: Path | None) -> Iterator[IO[bytes]]:
    """Yield where to write. A file is readable by its owner only, and gets its name once it is complete."""
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
    with progress.bar(TextColumn(label), DownloadColumn()) as bar:
        task = bar.add_task("", total=None)
        yield lambda size: bar.advance(task, size)


def _as_text(report: importing.ImportSummary) -> str:
    lines = [f"created {report.created}, skipped {report.skipped}, failed {report.failed}"]
    lines += [f"  line {warning.line}: {warning.message}" for warning in report.warnings[:_SHOWN_WARNINGS]]
    return "\n".join(lines)
