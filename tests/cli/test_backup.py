"""`backup` and `restore` as a person and as a script use them."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from app.caller import Caller
from app.services import projects
from app.store.database import Database
from tests.bench import harness

Command = Callable[..., Result]


def test_a_server_moves_into_another_folder(
    command: Command, store: Database, owner: Caller, folder: Path, tmp_path: Path, monkeypatch
):
    """Backed up here, restored there, found whole there."""
    with store.write() as connection:
        projects.create(connection, owner, name="kept")
    written = json.loads(command("backup", tmp_path / "b.db", "--json").stdout)
    monkeypatch.setenv("CMEM_DATA_DIR", str(tmp_path / "elsewhere"))

    assert written["rows"]["projects"] == 1
    assert command("restore", tmp_path / "b.db").exit_code == 0
    assert [project["name"] for project in json.loads(command("projects", "list", "--team", "a", "--json").stdout)] == [
        "kept"
    ]
    assert command("db", "check").output == "the database is whole\n"


def test_a_rehearsal_checks_and_changes_nothing(command: Command, owner: Caller, folder: Path, tmp_path: Path):
    """--dry-run says whether it would do."""
    command("backup", tmp_path / "b.db")
    before = (folder / "cmem.db").stat().st_ino

    assert json.loads(command("restore", tmp_path / "b.db", "--dry-run", "--json").stdout)["dryRun"] is True
    assert (folder / "cmem.db").stat().st_ino == before


def test_a_restore_is_refused_while_a_server_runs(command: Command, owner: Caller, folder: Path, tmp_path: Path):
    """The line says what to do; a backup goes through meanwhile."""
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


def test_a_backup_without_its_manifest_is_checked_by_itself(command: Command, owner: Caller, tmp_path: Path):
    """It says so."""
    command("backup", tmp_path / "b.db")
    shutil.copy(tmp_path / "b.db", tmp_path / "c.db")

    result = command("restore", tmp_path / "c.db")

    assert (result.exit_code, "no manifest" in result.output) == (0, True)
