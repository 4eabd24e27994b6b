"""`backup` and `restore`: the whole server in one file, and back."""

import sys
from pathlib import Path

import click
import msgspec
from rich.console import Console
from rich.progress import Progress

from app.cli import console
from app.services.backup import backup as service
from app.services.backup.backup import Place
from app.store import usage_lock


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--with-vectors", is_flag=True, help="Also pack the vector index; for that no server may run.")
@console.as_json
def backup(file: Path, with_vectors: bool, as_json: bool) -> None:
    """Write a verified backup to FILE, and its manifest beside it; a server may go on serving."""
    place = _place()
    with console.failures_in_one_line(), usage_lock.using(place.url), _bar() as bar:
        task = bar.add_task("copying", total=None)
        manifest = service.write(
            place,
            file,
            with_vectors=with_vectors,
            progress=lambda done, total: bar.update(task, completed=done, total=total),
        )
    shown = {"file": str(file), **msgspec.to_builtins(manifest)}
    console.show(shown, as_json=as_json, text=lambda _: f"wrote and checked {file}: {sum(manifest.rows.values())} rows")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Check the backup, and change nothing.")
@console.as_json
def restore(file: Path, dry_run: bool, as_json: bool) -> None:
    """Put the backup FILE in the place of the data; no server may run on them."""
    place = _place()
    with console.failures_in_one_line(), _bar() as bar:
        if dry_run:
            manifest = service.read(file, place.dialect)
        else:
            task = bar.add_task("restoring", total=None)
            manifest = service.restore(file, place, progress=lambda step: bar.update(task, description=step))
    shown = {"file": str(file), "dryRun": dry_run, "manifest": manifest}
    done = "is whole and can be restored" if dry_run else "is restored; the server makes the vectors anew"
    unproven = "" if manifest else " (there is no manifest beside it: checked by itself)"
    console.show(shown, as_json=as_json, text=lambda _: f"{file} {done}{unproven}")


def _place() -> Place:
    settings = console.loaded()
    vectors = settings.data_dir.absolute() / "chroma"
    return Place(settings.owner_database_url, vectors, settings.resolved_database_url)


def _bar() -> Progress:
    return Progress(console=Console(stderr=True), disable=not sys.stderr.isatty())
