"""`audit`: how long the audit log remembers."""

from dataclasses import asdict

import click

from app.cli import console
from app.cli.vectors import camel, progress_bar
from app.services.audit import pruning


@click.group()
def audit() -> None:
    """Look after the audit log."""


@audit.command()
@click.option("--older-than-days", type=click.IntRange(1), required=True, metavar="N", help="Keep this many days.")
@click.option("--dry-run", is_flag=True, help="Count, and change nothing.")
@console.as_json
def prune(older_than_days: int, dry_run: bool, as_json: bool) -> None:
    """Remove the oldest entries of every team, and note in the log that it was done."""
    with console.opened() as database, progress_bar("pruning") as progress:
        pruned = pruning.prune(
            database, older_than_days, dry_run=dry_run, progress=lambda removed: progress(removed, None)
        )
    verb = "would remove" if dry_run else "removed"
    shown = {"dryRun": dry_run, **camel(asdict(pruned))}
    console.show(shown, as_json=as_json, text=lambda _: f"{verb} {pruned.removed} entries")
