"""`retention`: applies the rules of projects, or says what they would remove."""

from dataclasses import asdict

import click

from app.cli import console
from app.services.deletion import retention as service


@click.group()
def retention() -> None:
    """Remove what the rules of its project let go."""


@retention.command()
@click.option("--team", metavar="TEAM", help="Id or slug of one team; all teams when left out.")
@click.option("--dry-run", is_flag=True, help="Count, and change nothing.")
@console.as_json
def run(team: str | None, dry_run: bool, as_json: bool) -> None:
    """Apply the rules of every project that has some; a server does so daily."""
    with console.opened() as database:
        team_id = None if team is None else console.within(database, team).team_id
        outcomes = list(service.run_all(database, team_id=team_id, dry_run=dry_run))
    shown = {
        "dryRun": dry_run,
        "removed": sum(outcome.removed for outcome in outcomes),
        "projects": [
            {"projectId": outcome.project_id, "removed": outcome.removed, "byRule": outcome.by_rule}
            for outcome in outcomes
        ],
    }
    verb = "would remove" if dry_run else "removed"
    rows = [asdict(outcome) for outcome in outcomes]
    console.show(
        shown,
        as_json=as_json,
        text=lambda _: "\n".join(
            [console.table(rows, ("project_id", "removed")), f"{verb} {shown['removed']} memories"]
        ),
    )
