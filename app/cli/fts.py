"""`fts`: checks and repairs the full-text index."""

import click

from app.cli import console, progress
from app.services.operations import fulltext_check
from app.store.database import Database


@click.group()
def fts() -> None:
    """Check and rebuild the full-text index."""


@fts.command()
@console.as_json
def check(as_json: bool) -> None:
    """Compare the index with every memory. Exits 1 when they differ."""
    with console.open_database() as database:
        is_intact = fulltext_check.is_full_text_whole(database)
    console.show({"ok": is_intact}, as_json=as_json, text=lambda _: _as_text(is_intact))
    if not is_intact:
        raise click.exceptions.Exit(1)


@fts.command()
@console.as_json
def rebuild(as_json: bool) -> None:
    """Rebuild the index from every memory. A server may keep running."""
    with console.open_database() as database:
        indexed = _rebuild(database)
    console.show({"indexed": indexed}, as_json=as_json, text=lambda _: f"Indexed {indexed} memories")


def _rebuild(database: Database) -> int:
    total = fulltext_check.count_memories(database)
    with progress.counting("indexing") as advance:
        return fulltext_check.rebuild_full_text(database, lambda done: advance(done, total))


def _as_text(is_intact: bool) -> str:
    if is_intact:
        return "The full-text index is intact"
    return "The full-text index differs from the memories. Run `cmem-server fts rebuild`"
