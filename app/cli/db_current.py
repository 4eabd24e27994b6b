"""`db current`: the revision of the database."""

import click

from app.cli import console
from app.store.schema import revisions


@click.command()
@console.as_json
def current(as_json: bool) -> None:
    """Show the database's revision and the newest known one."""
    settings = console.load_settings()
    with console.one_line_errors():
        console.require_database(settings)
        revision = revisions.current(settings.owner_database_url)
    console.show({"revision": revision, "head": revisions.newest()}, as_json=as_json, text=_as_text)


def _as_text(shown: dict[str, str | None]) -> str:
    if shown["revision"] is None:
        return f"not migrated; the newest known revision is {shown['head']}. Run `cmem-server db upgrade`"
    return f"at revision {shown['revision']}; the newest known revision is {shown['head']}"
