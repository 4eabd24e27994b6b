"""`retention`: applies the rules of projects, or reports what they would delete."""

from dataclasses import asdict

import click

from app.cli import console
from app.services.deletion import retention as service


@click.group()
def retention() -> None:
    """Apply retention rules."""


@retention.command()
@click.option("--team", metavar="TEAM", help="Id or slug of one team; all teams when omitted.")
@console.dry_run
@console.as_json
def run(team: str | None, dry_run: bool, as_json: bool) -> None:
    """Apply the rules of every project that has any. A server does this daily."""
    with console.open_database() as database:
        team_id = None if team is None else console.caller_in_team(database, team).team_id
        outcomes = list(service.run_all(database, team_id=team_id, dry_run=dry_run))
    removed = sum(outcome.removed for outcome in outcomes)
    reply = {
        "dryRun": dry_run,
        "removed": removed,
        "projects": [
            {"projectId": outcome.project_id, "removed": outcome.removed, "byRule": outcome.by_rule}
            for outcome in outcomes
        ],
    }
    projects = console.table([asdict(outcome) for outcome in outcomes], ("project_id", "removed"))
    summary = f"{'Would delete' if dry_run else 'Deleted'} {removed} memories"
    console.show(reply, as_json=as_json, text=lambda _: f"{projects}\n{summary}")
