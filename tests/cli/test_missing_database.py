"""A mistyped CMEM_DATA_DIR: every command says that there is no database, and none is made."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner
from sqlalchemy import make_url

from app.cli import main
from app.store.schema import migrations
from tests.cli import tree

CREATE = {"serve", "db upgrade", "restore"}
"""Commands that make a database where there is none."""
NEED_NONE = {"openapi"}
REPORT_IT = {"doctor"}
"""Commands whose output is a report, which says so in its own form."""
OPENING = sorted(tree.leaves().keys() - CREATE - NEED_NONE - REPORT_IT)
REPORT_AN_EMPTY_DATABASE = {"db check", "db current", "doctor"}
"""Commands that are about the state of a database, also of an empty one."""


@pytest.fixture
def data_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A data folder that does not exist."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CMEM_DATA_DIR", str(tmp_path / "mistyped"))
    return tmp_path / "mistyped"


def everything_below(folder: Path) -> dict[Path, bytes | None]:
    return {path: path.read_bytes() if path.is_file() else None for path in folder.rglob("*")}


@pytest.mark.parametrize("path", OPENING)
def test_a_command_says_that_there_is_no_database_and_makes_none(data_dir: Path, tmp_path: Path, path: str):
    """One line with the path and what to do; no folder and no file."""
    arguments = tree.command_line(path, tmp_path)
    before = everything_below(tmp_path)

    result = CliRunner().invoke(main, arguments)

    assert (result.exit_code, result.output) == (
        1,
        f"Error: There is no database at {data_dir / 'cmem.db'}."
        " Check CMEM_DATA_DIR, or start `cmem-server serve` to create one.\n",
    )
    assert everything_below(tmp_path) == before


@pytest.mark.parametrize("path", OPENING)
def test_an_empty_data_folder_stays_empty(data_dir: Path, tmp_path: Path, path: str):
    """No lock file either."""
    data_dir.mkdir()

    result = CliRunner().invoke(main, tree.command_line(path, tmp_path))

    assert (result.exit_code, result.output.startswith("Error: There is no database at ")) == (1, True)
    assert list(data_dir.iterdir()) == []


def test_the_doctor_says_so_as_a_finding_and_makes_none(data_dir: Path, tmp_path: Path):
    """As a screen and as JSON, with what to do."""
    screen, as_json = CliRunner().invoke(main, ["doctor"]), CliRunner().invoke(main, ["doctor", "--json"])

    assert (screen.exit_code, "There is no database at" in screen.output) == (1, True)
    assert json.loads(as_json.output) == {
        "ok": False,
        "findings": [
            {
                "what": "database",
                "state": "failed",
                "detail": f"There is no database at {data_dir / 'cmem.db'}.",
                "remedy": "Check CMEM_DATA_DIR, or start `cmem-server serve` to create one.",
            }
        ],
    }
    assert list(tmp_path.iterdir()) == []


def test_the_setting_that_leads_to_it_is_named(data_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """A URL counts more than the folder."""
    monkeypatch.setenv("CMEM_DATABASE_URL", f"sqlite:///{tmp_path / 'other.db'}")

    result = CliRunner().invoke(main, ["teams", "list"])

    assert result.output == (
        f"Error: There is no database at {tmp_path / 'other.db'}."
        " Check CMEM_DATABASE_URL, or start `cmem-server serve` to create one.\n"
    )
    assert list(tmp_path.iterdir()) == []


def test_an_upgrade_makes_the_database(data_dir: Path):
    """As do a server, and a restore: these are what it is made with."""
    assert CliRunner().invoke(main, ["db", "upgrade"]).exit_code == 0
    assert CliRunner().invoke(main, ["teams", "list"]).exit_code == 0
    assert (data_dir / "cmem.db").is_file()


@pytest.fixture
def empty_postgresql(empty_database: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a PostgreSQL database without a table, which the settings lead to."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CMEM_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("CMEM_VECTORS", "off")
    monkeypatch.setenv("CMEM_DATABASE_URL", empty_database)
    return make_url(empty_database).database or ""


@pytest.mark.parametrize("path", [path for path in OPENING if path not in REPORT_AN_EMPTY_DATABASE])
def test_an_empty_postgresql_database_has_not_been_migrated(empty_postgresql: str, tmp_path: Path, path: str):
    """There, `db upgrade` alone makes tables."""
    result = CliRunner().invoke(main, tree.command_line(path, tmp_path))

    assert (result.exit_code, result.output) == (
        1,
        f"Error: The database {empty_postgresql} has not been migrated. Run `cmem-server db upgrade` first.\n",
    )


def test_reports_of_an_empty_postgresql_database_say_so(empty_postgresql: str):
    """`db current` exits 0: a container waits with it for the database server, and migrates afterwards."""
    current, check, doctor = (CliRunner().invoke(main, path.split()) for path in ("db current", "db check", "doctor"))

    assert (current.exit_code, check.exit_code, doctor.exit_code) == (0, 1, 1)
    assert current.output == (
        f"not migrated; the newest known revision is {migrations.head()}. Run `cmem-server db upgrade`\n"
    )
    assert all("cmem-server db upgrade" in result.output for result in (check, doctor))
