"""`cmem-server`: all commands in one place."""

import click

from app.cli import (
    adopt_vectors,
    audit,
    backup,
    db,
    db_copy,
    doctor,
    erase,
    export_import,
    fts,
    keys,
    legacy,
    maintenance,
    members,
    openapi,
    projects,
    retention,
    serve,
    teams,
    vectors,
)
from app.version import VERSION


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="cmem-server")
def main() -> None:
    """Team memory for AI coding agents. Settings come from CMEM_* in the environment or a .env file."""


for command in (
    serve.serve,
    db.db,
    teams.teams,
    members.members,
    projects.projects,
    keys.keys,
    legacy.legacy,
    fts.fts,
    vectors.vectors,
    backup.backup,
    backup.restore,
    doctor.doctor,
    erase.erase,
    retention.retention,
    audit.audit,
    maintenance.maintenance,
    export_import.export,
    export_import.import_,
    openapi.openapi,
):
    main.add_command(command)
legacy.legacy.add_command(adopt_vectors.adopt_vectors)
db.db.add_command(db_copy.copy)
