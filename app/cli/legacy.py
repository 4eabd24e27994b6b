"""`legacy`: brings in what claude-mem remembers. Opens the file, shows progress, prints the report; no rules here."""

import contextlib
import sqlite3
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from app.cli import console
from app.legacy import reader, snapshot
from app.legacy.shapes import MEMORY_TABLES, SESSION_TABLES, Rules
from app.services.transfer import legacy_import

_SHOWN_WARNINGS = 20


@click.group()
def legacy() -> None:
    """Move from claude-mem."""


@legacy.command("import")
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@console.of_team
@click.option("--project-map", multiple=True, metavar="OLD=NEW", help="Put a legacy project into another one.")
@click.option("--into", metavar="PROJECT", help="Put everything into one project; made when absent.")
@click.option("--include-internal", is_flag=True, help="Also bring in what claude-mem's observer wrote about itself.")
@click.option("--skip-other-devices", is_flag=True, help="Leave out rows that a sync copied from another device.")
@click.option("--dry-run", is_flag=True, help="Count, and change nothing.")
@console.as_json
def import_(
    path: Path,
    team: str,
    project_map: tuple[str, ...],
    into: str | None,
    include_internal: bool,
    skip_other_devices: bool,
    dry_run: bool,
    as_json: bool,
) -> None:
    """Bring in the claude-mem database at PATH, which stays as it is; running it again adds only what is new."""
    destination = legacy_import.Destination(project_map=_renames(project_map), into=into)
    rules = Rules(internal=include_internal, other_devices=not skip_other_devices)
    with console.opened() as database, _source_opened(path, rules) as source:
        caller = console.within(database, team)
        with _progress_bar(source) as progress:
            report = legacy_import.run(database, caller, source, destination, dry_run=dry_run, progress=progress)
    click.echo(_as_json(report) if as_json else _as_text(report))


def _renames(project_map: tuple[str, ...]) -> dict[str, str]:
    pairs = [rename.partition("=") for rename in project_map]
    if not all(old and new for old, _, new in pairs):
        raise click.BadParameter("write it as OLD=NEW", param_hint="--project-map")
    return {old: new for old, _, new in pairs}


@contextlib.contextmanager
def _source_opened(path: Path, rules: Rules) -> Iterator[reader.LegacyDatabase]:
    """Yield the legacy database; what cannot be read of it is one line that says so."""
    try:
        with reader.opened(path, rules) as source:
            yield source
    except (reader.NotClaudeMem, snapshot.SourceBusy) as failure:
        raise click.ClickException(str(failure)) from failure
    except (OSError, sqlite3.DatabaseError) as failure:
        raise click.ClickException(f"the legacy database cannot be read: {failure}") from failure


@contextlib.contextmanager
def _progress_bar(source: reader.LegacyDatabase) -> Iterator[Callable[[int], None]]:
    total = sum(source.count(table) for table in (*SESSION_TABLES, *MEMORY_TABLES))
    columns = (TextColumn("importing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=total)
        yield lambda done: bar.update(task, completed=done)


def _as_json(report: legacy_import.Report) -> str:
    counts: dict[str, object] = dict(report.counts.items())
    fields = {"origin": report.origin, "dryRun": report.dry_run, **counts, "warnings": report.warnings}
    return msgspec.json.format(msgspec.json.encode(fields)).decode()


def _as_text(report: legacy_import.Report) -> str:
    lines = [f"{'Would import' if report.dry_run else 'Imported'} {report.origin}", ""]
    lines.append(f"{'':14}{'created':>10}{'skipped':>10}{'failed':>10}")
    for noun, counts in report.counts.items():
        lines.append(f"{noun:14}{counts.created:10}{counts.skipped:10}{counts.failed:10}")
    if report.warnings:
        lines += ["", f"{len(report.warnings)} warnings:"]
    lines += [f"  {warning.table} {warning.id}: {warning.message}" for warning in report.warnings[:_SHOWN_WARNINGS]]
    if len(report.warnings) > _SHOWN_WARNINGS:
        lines.append("  … all of them with --json")
    return "\n".join(lines)
