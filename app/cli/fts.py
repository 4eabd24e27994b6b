"""`fts`: care of the full-text index."""

import sys

import click
from rich.console import Console
from rich.progress import Progress

from app.cli import console
from app.services.operations import fulltext_check
from app.store.database import Database


@click.group()
def fts() -> None:
    """Check and rebuild the full-text index."""


@fts.command()
@console.as_json
def check(as_json: bool) -> None:
    """Compare the index with every memory; exits 1 when they differ."""
    with console.opened() as database:
        is_whole = fulltext_check.is_full_text_whole(database)
    show = {"ok": is_whole}
    console.show(show, as_json=as_json, text=lambda _: "full text is whole" if is_whole else "full text has drifted")
    if not is_whole:
        raise click.exceptions.Exit(1)


@fts.command()
@console.as_json
def rebuild(as_json: bool) -> None:
    """Index every memory anew, while a server may go on serving."""
    with console.opened() as database:
        indexed = _with_progress(database)
    console.show({"indexed": indexed}, as_json=as_json, text=lambda _: f"indexed {indexed} memories")


def _with_progress(database: Database) -> int:
    with Progress(console=Console(stderr=True), disable=not sys.stderr.isatty()) as bar:
        task = bar.add_task("indexing", total=fulltext_check.count_memories(database))
        return fulltext_check.rebuild_full_text(database, lambda done: bar.update(task, completed=done))
