"""`audit`: how long entries of the audit log are kept."""

from dataclasses import asdict

import click

from app.cli import console, progress
from app.services.audit import pruning


@click.group()
def audit() -> None:
    """Maintain the audit log."""


@audit.command()
@click.option("--older-than-days", type=click.IntRange(1), required=True, metavar="N", help="Days to keep.")
@console.dry_run
@console.as_json
def prune(older_than_days: int, dry_run: bool, as_json: bool) -> None:
    """Delete the oldest entries of every team, and record that in the log."""
    with console.open_database() as database, progress.counting("pruning") as advance:
        pruned = pruning.prune(
            database, older_than_days, dry_run=dry_run, progress=lambda removed: advance(removed, None)
        )
    verb = "Would delete" if dry_run else "Deleted"
    reply = {"dryRun": dry_run, **console.camel(asdict(pruned))}
    console.show(reply, as_json=as_json, text=lambda _: f"{verb} {pruned.removed} entries")
