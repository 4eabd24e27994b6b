"""`cmem-server`: the table of all commands. Imports nothing but click, so that `--help` and `--version` are quick."""

from typing import Final

import click

from app.cli.lazy import LazyCommand, LazyGroup

COMMANDS: Final = {
    "serve": LazyCommand("app.cli.serve", "serve", "Serve the API."),
    "teams": LazyCommand("app.cli.teams", "teams", "Create and list teams."),
    "members": LazyCommand("app.cli.members", "members", "Add, list and remove the members of a team."),
    "projects": LazyCommand("app.cli.projects", "projects", "Create and list projects."),
    "keys": LazyCommand("app.cli.keys", "keys", "Create, list, rotate and revoke API keys."),
    "fts": LazyCommand("app.cli.fts", "fts", "Check and rebuild the full-text index."),
    "vectors": LazyCommand("app.cli.vectors", "vectors", "Check and repair the vector index."),
    "backup": LazyCommand("app.cli.backup", "backup", "Write a verified backup to FILE, and its manifest next to it."),
    "restore": LazyCommand("app.cli.backup", "restore", "Replace all data with the backup FILE."),
    "doctor": LazyCommand("app.cli.doctor", "doctor", "Check the installation and suggest fixes."),
    "erase": LazyCommand("app.cli.erase", "erase", "Erase all data of one person."),
    "retention": LazyCommand("app.cli.retention", "retention", "Apply retention rules."),
    "audit": LazyCommand("app.cli.audit", "audit", "Maintain the audit log."),
    "maintenance": LazyCommand(
        "app.cli.maintenance", "maintenance", "Keep the server small and deleted text off disk."
    ),
    "export": LazyCommand("app.cli.export_import", "export", "Export a project or a team."),
    "import": LazyCommand("app.cli.export_import", "import_", "Import an export."),
    "openapi": LazyCommand("app.cli.openapi", "openapi", "Write the OpenAPI document from the code."),
}
DB_COMMANDS: Final = {
    "upgrade": LazyCommand("app.cli.db", "upgrade", "Migrate the database to REVISION, by default the newest."),
    "downgrade": LazyCommand("app.cli.db", "downgrade", "Migrate the database back to REVISION."),
    "current": LazyCommand("app.cli.db_current", "current", "Show the database's revision and the newest known one."),
    "check": LazyCommand("app.cli.db_check", "check", "Check tables, triggers, full text and foreign keys."),
    "copy": LazyCommand("app.cli.db_copy", "copy", "Copy everything into an empty PostgreSQL database and compare."),
}
LEGACY_COMMANDS: Final = {
    "import": LazyCommand("app.cli.legacy_import", "import_", "Import the claude-mem database at PATH."),
    "adopt-vectors": LazyCommand(
        "app.cli.adopt_vectors", "adopt_vectors", "Take over the vectors in FOLDER for imported memories."
    ),
}


@click.group(cls=LazyGroup, table=COMMANDS, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="cmem-server", prog_name="cmem-server")
def main() -> None:
    """Team memory for AI coding agents. Settings are read from CMEM_* environment variables or a .env file."""


@main.group(cls=LazyGroup, table=DB_COMMANDS)
def db() -> None:
    """Migrate, check and copy the database."""


@main.group(cls=LazyGroup, table=LEGACY_COMMANDS)
def legacy() -> None:
    """Move from claude-mem."""
