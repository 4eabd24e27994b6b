"""`db copy`: everything into a PostgreSQL database, with a report of what differs."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

import click
import msgspec
from sqlalchemy import make_url

from app.cli import console, progress
from app.services.backup import copy_to_postgresql
from app.services.backup.copy_to_postgresql import CopyReport, Vectors
from app.settings import Settings
from app.store.database import Database

_SHOWN = 20


@click.command()
@click.option("--to", "url", required=True, metavar="URL", help="An empty PostgreSQL database, as its owner.")
@click.option("--server-role", metavar="ROLE", help="The role of the servers; it is granted its privileges.")
@click.option(
    "--vectors",
    type=click.Choice(["keep", "rebuild"]),
    help="keep: the servers go on using the same Chroma server (the default with CMEM_VECTORS=http);"
    " rebuild: embed everything again.",
)
@click.option(
    "--snapshot", is_flag=True, help="Copy a snapshot while a server keeps running; later writes are not copied."
)
@click.option("--dry-run", is_flag=True, help="Read everything, report what would be copied, and change nothing.")
@console.as_json
def copy(
    url: str, server_role: str | None, vectors: Vectors | None, snapshot: bool, dry_run: bool, as_json: bool
) -> None:
    """Copy everything into an empty PostgreSQL database and compare. An interrupted copy resumes where it stopped."""
    settings = console.load_settings()
    chosen: Vectors = vectors or ("keep" if settings.vectors == "http" else "rebuild")
    with console.one_line_errors():
        copy_to_postgresql.require_postgresql(url)
    with console.open_database(exclusive=not snapshot) as source, closing(Database(url)) as target, _bar() as advance:
        if dry_run:
            report = copy_to_postgresql.rehearse(source, target, vectors=chosen, progress=advance)
        else:
            copy_to_postgresql.prepare(url, server_role or _server_role(settings, url))
            report = copy_to_postgresql.copy(source, target, vectors=chosen, progress=advance)
    console.show({"ok": report.ok, **msgspec.to_builtins(report)}, as_json=as_json, text=lambda _: _as_text(report))
    if not report.ok:
        raise click.exceptions.Exit(1)


def _server_role(settings: Settings, url: str) -> str | None:
    """Return the servers' role in the settings, where the source is a PostgreSQL database too."""
    role = make_url(settings.resolved_database_url).username
    return None if role == make_url(url).username else role


@contextmanager
def _bar() -> Iterator[copy_to_postgresql.Progress]:
    with progress.bar(*progress.COUNTED) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


def _as_text(report: CopyReport) -> str:
    lines = [_heading(report), "", f"{'':22}{'rows':>10}{'copied':>10}  hash"]
    for name, table in report.tables.items():
        comparison = {True: "identical", False: "DIFFERS", None: ""}[table.same]
        lines.append(f"{name:22}{table.rows:10}{table.copied:10}  {table.hash[:12]}  {comparison}".rstrip())
    if report.replaced_rows:
        heading = f"In {report.replaced_rows} rows, text that PostgreSQL cannot store (NUL, broken UTF-8) was replaced:"
        rows = [f"{row.table} {' '.join(row.key)}: {', '.join(row.columns)}" for row in report.replaced]
        lines += ["", heading, *_first(rows)]
    if report.refused:
        heading = f"PostgreSQL rejected {len(report.refused)} rows, which are not in the copy:"
        lines += ["", heading, *_first(report.refused)]
    return "\n".join([*lines, *([""] if report.faults else []), *_first(report.faults)])


def _heading(report: CopyReport) -> str:
    vectors = {"keep": "the outbox was copied", "rebuild": "every memory is embedded again"}[report.vectors]
    if report.finished_before:
        return "Already copied: compared again, nothing copied"
    return f"{'Would copy' if report.dry_run else 'Copied'}; vectors: {vectors}"


def _first(lines: list[str]) -> list[str]:
    more = ["  … all of them with --json"] if len(lines) > _SHOWN else []
    return [f"  {line}" for line in lines[:_SHOWN]] + more
