"""`legacy import`: opens a claude-mem database, shows progress and prints the report. Contains no rules."""

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path

import click
import msgspec

from app.cli import console, progress
from app.legacy import reader, snapshot
from app.legacy.shapes import MEMORY_TABLES, SESSION_TABLES, ReaderOptions
from app.services.transfer import legacy_import

_SHOWN_WARNINGS = 20


@click.command("import")
@click.argument("path", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@console.of_team
@click.option("--project-map", multiple=True, metavar="OLD=NEW", help="Import a legacy project into another one.")
@click.option("--into", metavar="PROJECT", help="Import everything into one project; created when it does not exist.")
@click.option("--include-internal", is_flag=True, help="Also import what claude-mem's observer wrote about itself.")
@click.option("--skip-other-devices", is_flag=True, help="Skip rows that a sync copied from another device.")
@console.dry_run
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
    """Import the claude-mem database at PATH. PATH is not changed, and running it again adds only what is new."""
    destination = legacy_import.Destination(project_map=_renames(project_map), into=into)
    options = ReaderOptions(internal=include_internal, other_devices=not skip_other_devices)
    with console.open_database() as database, _open_source(path, options) as source:
        caller = console.caller_in_team(database, team)
        with _progress_bar(source) as advance:
            report = legacy_import.run(database, caller, source, destination, dry_run=dry_run, progress=advance)
    click.echo(_as_json(report) if as_json else _as_text(report))


def _renames(project_map: tuple[str, ...]) -> dict[str, str]:
    pairs = [rename.partition("=") for rename in project_map]
    if not all(old and new for old, _, new in pairs):
        raise click.BadParameter("must be OLD=NEW", param_hint="--project-map")
    return {old: new for old, _, new in pairs}


@contextlib.contextmanager
def _open_source(path: Path, options: ReaderOptions) -> Iterator[reader.LegacyDatabase]:
    """Yield the legacy database; report in one line what cannot be read."""
    try:
        with reader.open_copy(path, options) as source:
            yield source
    except (reader.NotClaudeMem, snapshot.SourceBusy) as failure:
        raise click.ClickException(str(failure)) from failure
    except (OSError, console.SqliteError) as failure:
        raise click.ClickException(f"The legacy database cannot be read: {failure}") from failure


@contextlib.contextmanager
def _progress_bar(source: reader.LegacyDatabase) -> Iterator[Callable[[int], None]]:
    total = sum(source.count(table) for table in (*SESSION_TABLES, *MEMORY_TABLES))
    with progress.bar(*progress.COUNTED) as bar:
        task = bar.add_task("importing", total=total)
        yield lambda done: bar.update(task, completed=done)


def _as_json(report: legacy_import.LegacyImportReport) -> str:
    counts: dict[str, object] = dict(report.counts.items())
    fields = {"origin": report.origin, "dryRun": report.dry_run, **counts, "warnings": report.warnings}
    return msgspec.json.format(msgspec.json.encode(fields)).decode()


def _as_text(report: legacy_import.LegacyImportReport) -> str:
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
