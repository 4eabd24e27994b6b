"""`backup` and `restore` as a person and as a script use them."""

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import Result

from app.caller import Caller
from app.services.projects import projects
from app.store.database import Database
from tests.bench import harness
from tests.databases import Databases, database_url

Command = Callable[..., Result]


@pytest.fixture
def empty_elsewhere(databases: Databases, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The settings of an empty server in another folder."""
    folder = tmp_path / "elsewhere"
    with database_url(databases, folder):
        yield {"data_dir": str(folder), **databases.settings(folder)}


def test_a_server_moves_into_another_folder(
    command: Command, store: Database, owner: Caller, empty_elsewhere: dict[str, str], tmp_path: Path, monkeypatch
):
    """Backed up here, restored and intact there."""
    with store.write() as connection:
        projects.create(connection, owner, name="kept")
    written = json.loads(command("backup", tmp_path / "b.db", "--json").stdout)
    for name, value in empty_elsewhere.items():
        monkeypatch.setenv(f"CMEM_{name.upper()}", value)

    assert written["rows"]["projects"] == 1
    assert command("restore", tmp_path / "b.db").exit_code == 0
    assert [project["name"] for project in json.loads(command("projects", "list", "--team", "a", "--json").stdout)] == [
        "kept"
    ]
    assert command("db", "check").output == "the database is intact\n"


def test_a_dry_run_verifies_the_backup_and_changes_nothing(
    command: Command, store: Database, owner: Caller, tmp_path: Path
):
    """--dry-run says whether the backup can be restored."""
    command("backup", tmp_path / "b.db")
    with store.write() as connection:
        projects.create(connection, owner, name="later")

    assert json.loads(command("restore", tmp_path / "b.db", "--dry-run", "--json").stdout)["dryRun"] is True
    with store.read() as connection:
        assert [project.name for project in projects.list_all(connection, owner)] == ["later"]


def test_a_restore_is_refused_while_a_server_runs(
    command: Command, store: Database, owner: Caller, folder: Path, tmp_path: Path
):
    """The line says what to do; a backup works meanwhile."""
    store.close()
    with harness.serving(folder) as running:
        assert running.process.stdout is not None
        running.process.stdout.close()
        assert command("backup", tmp_path / "b.db").exit_code == 0
        result = command("restore", tmp_path / "b.db")

    assert (result.exit_code, result.output) == (
        1,
        "Error: A server or another command uses this database: stop it first.\n",
    )
    assert command("restore", tmp_path / "b.db").exit_code == 0


def test_a_backup_without_a_manifest_is_restored_with_a_note(
    command: Command, store: Database, owner: Caller, tmp_path: Path
):
    """Only the file itself can be checked then."""
    store.close()
    command("backup", tmp_path / "b.db")
    shutil.copy(tmp_path / "b.db", tmp_path / "c.db")

    result = command("restore", tmp_path / "c.db")

    assert (result.exit_code, "no manifest" in result.output) == (0, True)
