"""`cmem-server`: all commands in one place."""

import click

from app.api.health import VERSION
from app.cli import (
    adoption,
    audit,
    backup,
    contract,
    copying,
    database,
    doctor,
    erasure,
    fulltext,
    keys,
    legacy,
    maintenance,
    members,
    projects,
    retention,
    serve,
    teams,
    transfer,
    vectors,
)


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="cmem-server")
def main() -> None:
    """Team memory for AI coding agents. Settings come from CMEM_* in the environment or a .env file."""


for command in (
    serve.serve,
    database.db,
    teams.teams,
    members.members,
    projects.projects,
    keys.keys,
    legacy.legacy,
    fulltext.fts,
    vectors.vectors,
    backup.backup,
    backup.restore,
    doctor.doctor,
    erasure.erase,
    retention.retention,
    audit.audit,
    maintenance.maintenance,
    transfer.export,
    transfer.import_,
    contract.openapi,
):
    main.add_command(command)
legacy.legacy.add_command(adoption.adopt_vectors)
database.db.add_command(copying.copy)
