"""`db check`: whether the database is intact."""

import click

from app.cli import console
from app.services.operations import fulltext_check


@click.command()
@console.as_json
def check(as_json: bool) -> None:
    """Check tables, triggers, full text and foreign keys. Exits 1 when anything is wrong."""
    with console.open_database(migrate=False) as database:
        faults = fulltext_check.faults(database)
    console.show({"ok": not faults, "faults": faults}, as_json=as_json, text=_as_text)
    if faults:
        raise click.exceptions.Exit(1)


def _as_text(result: dict[str, list[str]]) -> str:
    return "\n".join(result["faults"]) or "the database is intact"
