"""`backup` and `restore`: the whole server in one file, and back."""

from pathlib import Path

import click
import msgspec

from app.cli import console, progress
from app.services.backup import backup as service
from app.services.backup.backup import DataLocation
from app.settings import Settings
from app.store import usage_lock


@click.command()
@click.argument("file", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--with-vectors", is_flag=True, help="Also back up the vector index; no server may be running.")
@console.as_json
def backup(file: Path, with_vectors: bool, as_json: bool) -> None:
    """Write a verified backup to FILE, and its manifest next to it. A server may keep running."""
    settings = console.load_settings()
    place = _place(settings)
    with console.one_line_errors():
        console.require_database(settings)
        console.require_migrated(place.url)
        with usage_lock.shared(place.url), progress.counting("copying") as advance:
            manifest = service.write(place, file, with_vectors=with_vectors, progress=advance)
    reply = {"file": str(file), **msgspec.to_builtins(manifest)}
    rows = sum(manifest.rows.values())
    console.show(reply, as_json=as_json, text=lambda _: f"Wrote and verified {file}: {rows} rows")


@click.command()
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--dry-run", is_flag=True, help="Verify the backup, and change nothing.")
@console.as_json
def restore(file: Path, dry_run: bool, as_json: bool) -> None:
    """Replace all data with the backup FILE. No server may be running."""
    place = _place(console.load_settings())
    with console.one_line_errors(), progress.steps("restoring") as advance:
        manifest = service.read(file, place.dialect) if dry_run else service.restore(file, place, progress=advance)
    reply = {"file": str(file), "dryRun": dry_run, "manifest": manifest}
    outcome = "is intact and can be restored" if dry_run else "has been restored; the server will rebuild the vectors"
    unverified = "" if manifest else " (no manifest next to it: only the file itself was checked)"
    console.show(reply, as_json=as_json, text=lambda _: f"{file} {outcome}{unverified}")


def _place(settings: Settings) -> DataLocation:
    vectors = settings.data_dir.absolute() / "chroma"
    return DataLocation(settings.owner_database_url, vectors, settings.resolved_database_url)
