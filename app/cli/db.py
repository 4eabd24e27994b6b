"""`db upgrade` and `db downgrade`: migrations."""

import click

from app.cli import console
from app.store.schema import migrations


@click.command()
@click.argument("revision", default="head")
def upgrade(revision: str) -> None:
    """Migrate the database to REVISION, by default the newest. Creates it where there is none."""
    settings = console.load_settings()
    url = settings.owner_database_url
    with console.one_line_errors():
        click.echo(f"at revision {migrations.upgrade(url, revision)}")
        if (role := migrations.grant(url, settings.resolved_database_url)) is not None:
            click.echo(f"role {role} has its privileges")


@click.command()
@click.argument("revision")
def downgrade(revision: str) -> None:
    """Migrate the database back to REVISION. `base` drops every table."""
    settings = console.load_settings()
    url = settings.owner_database_url
    with console.one_line_errors():
        console.require_database(settings)
        console.require_migrated(url)
        click.echo(f"at revision {migrations.downgrade(url, revision)}")
