"""`db copy`: everything into a PostgreSQL, with progress on a terminal and a report that says what differs."""

import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager

import click
import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from sqlalchemy import make_url

from app.cli import console
from app.services.backup import copy_to_postgresql
from app.services.backup.copy_to_postgresql import Report, Vectors
from app.settings import Settings
from app.store.database import Database

_SHOWN = 20


@click.command()
@click.option("--to", "url", required=True, metavar="URL", help="An empty PostgreSQL, as the role that owns it.")
@click.option("--server-role", metavar="ROLE", help="The role of the servers, which may then use it.")
@click.option(
    "--vectors",
    type=click.Choice(["keep", "rebuild"]),
    help="keep: the same Chroma server serves on (the default with CMEM_VECTORS=http); rebuild: embed everything anew.",
)
@click.option(
    "--snapshot", is_flag=True, help="Copy one moment while a server goes on; what is written later is not in it."
)
@click.option("--dry-run", is_flag=True, help="Read everything, say what would be copied, and change nothing.")
@console.as_json
def copy(
    url: str, server_role: str | None, vectors: Vectors | None, snapshot: bool, dry_run: bool, as_json: bool
) -> None:
    """Copy everything into an empty PostgreSQL and compare; interrupted, it goes on where it stopped."""
    settings = console.loaded()
    chosen: Vectors = vectors or ("keep" if settings.vectors == "http" else "rebuild")
    with console.failures_in_one_line():
        copy_to_postgresql.require_postgresql(url)
    with console.opened(alone=not snapshot) as source, closing(Database(url)) as target, _bar() as bar:
        if dry_run:
            report = copy_to_postgresql.rehearse(source, target, vectors=chosen, progress=bar)
        else:
            copy_to_postgresql.prepare(url, server_role or _role_of(settings, url))
            report = copy_to_postgresql.copy(source, target, vectors=chosen, progress=bar)
    console.show({"ok": report.ok, **msgspec.to_builtins(report)}, as_json=as_json, text=lambda _: _as_text(report))
    if not report.ok:
        raise click.exceptions.Exit(1)


def _role_of(settings: Settings, url: str) -> str | None:
    """Return the servers' role as the settings name it, where the source is a PostgreSQL too."""
    role = make_url(settings.resolved_database_url).username
    return None if role == make_url(url).username else role


@contextmanager
def _bar() -> Iterator[copy_to_postgresql.Progress]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("", total=None)
        yield lambda what, done, total: bar.update(task, description=what, completed=done, total=total)


def _as_text(report: Report) -> str:
    lines = [_heading(report), "", f"{'':22}{'rows':>10}{'copied':>10}  hash"]
    for name, table in report.tables.items():
        verdict = {True: "the same in both", False: "DIFFERS", None: ""}[table.same]
        lines.append(f"{name:22}{table.rows:10}{table.copied:10}  {table.hash[:12]}  {verdict}".rstrip())
    if report.replaced_rows:
        lines += ["", f"In {report.replaced_rows} rows, what PostgreSQL cannot keep (NUL, broken UTF-8) was replaced:"]
        lines += _first([f"{row.table} {' '.join(row.key)}: {', '.join(row.columns)}" for row in report.replaced])
    if report.refused:
        lines += [
            "",
            f"PostgreSQL refused {len(report.refused)} rows, which are not in the copy:",
            *_first(report.refused),
        ]
    return "\n".join([*lines, *([""] if report.faults else []), *_first(report.faults)])


def _heading(report: Report) -> str:
    vectors = {"keep": "the outbox is the source's", "rebuild": "every memory is mirrored anew"}[report.vectors]
    if report.finished_before:
        return "Was copied before: compared again, nothing copied"
    return f"{'Would copy' if report.dry_run else 'Copied'}; vectors: {vectors}"


def _first(lines: list[str]) -> list[str]:
    more = ["  … all of them with --json"] if len(lines) > _SHOWN else []
    return [f"  {line}" for line in lines[:_SHOWN]] + more
