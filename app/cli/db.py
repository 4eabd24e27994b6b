"""`db`: migrations, and whether the database is whole."""

import click

from app.cli import console
from app.services.operations import fulltext_check
from app.store.schema import migrations


@click.group()
def db() -> None:
    """Migrate and check the database."""


@db.command()
@click.argument("revision", default="head")
def upgrade(revision: str) -> None:
    """Bring the database to REVISION, the newest by default."""
    settings = console.loaded()
    url = settings.owner_database_url
    with console.failures_in_one_line():
        click.echo(f"at revision {migrations.upgrade(url, revision)}")
        if (role := migrations.grant(url, settings.resolved_database_url)) is not None:
            click.echo(f"the role {role} may use it")


@db.command()
@click.argument("revision")
def downgrade(revision: str) -> None:
    """Take the database back to REVISION; `base` empties it."""
    with console.failures_in_one_line():
        click.echo(f"at revision {migrations.downgrade(console.loaded().owner_database_url, revision)}")


@db.command()
@console.as_json
def current(as_json: bool) -> None:
    """Say which revision the database has, and which one this version knows."""
    with console.failures_in_one_line():
        revision = migrations.current(console.loaded().owner_database_url)
    console.show(
        {"revision": revision, "head": migrations.head()},
        as_json=as_json,
        text=lambda value: f"at revision {value['revision']}, the newest known is {value['head']}",
    )


@db.command()
@console.as_json
def check(as_json: bool) -> None:
    """Check tables, triggers, full text and foreign keys; exits 1 when anything is wrong."""
    with console.opened(upgraded=False) as database:
        faults = fulltext_check.faults(database)
    console.show({"ok": not faults, "faults": faults}, as_json=as_json, text=_as_text)
    if faults:
        raise click.exceptions.Exit(1)


def _as_text(result: dict[str, list[str]]) -> str:
    return "\n".join(result["faults"]) or "the database is whole"
