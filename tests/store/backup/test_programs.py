"""PostgreSQL's own programs are found, are new enough, and are told nothing where others can read it."""

import os
from pathlib import Path

import pytest

from app.store.backup import BackupError, programs


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without PostgreSQL, and a folder in its PATH."""
    (tmp_path / "bin").mkdir()
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.setattr(programs, "INSTALLED", str(tmp_path / "postgresql"))
    return tmp_path


def install(folder: Path, name: str, *, version: int) -> str:
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{name} (PostgreSQL) {version}.4 (Debian)'\n")
    path.chmod(0o755)
    return str(path)


def test_the_newest_of_all_is_taken(nothing_installed: Path):
    """In PATH, or where Debian puts the versions side by side."""
    install(nothing_installed / "postgresql/9/bin", "pg_dump", version=9)
    newest = install(nothing_installed / "postgresql/17/bin", "pg_dump", version=17)
    install(nothing_installed / "bin", "pg_dump", version=15)

    assert programs.program("pg_dump", server=16) == newest


def test_one_that_is_missing_is_named(nothing_installed: Path):
    """With what to install."""
    with pytest.raises(BackupError) as refused:
        programs.program("pg_dump", server=16)

    assert str(refused.value) == (
        "pg_dump is not installed: install PostgreSQL's client programs of version 16 or newer."
    )


def test_one_that_is_too_old_is_named(nothing_installed: Path):
    """It would refuse the server, in words that do not say what to do."""
    install(nothing_installed / "bin", "pg_dump", version=15)

    with pytest.raises(BackupError) as refused:
        programs.program("pg_dump", server=16)

    assert str(refused.value) == (
        "pg_dump is of version 15, the server of 16: install PostgreSQL's client programs of version 16 or newer."
    )


def test_an_address_goes_into_the_environment(monkeypatch: pytest.MonkeyPatch):
    """Where it is said, with the password; of the surroundings the rest stays."""
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=1MB")
    told = programs.environment("postgresql+psycopg://owner:se%20cret@db:5433/team?sslmode=require")

    named = {name: value for name, value in told.items() if name.startswith("PG")}
    assert named == {
        "PGHOST": "db",
        "PGPORT": "5433",
        "PGUSER": "owner",
        "PGPASSWORD": "se cret",
        "PGDATABASE": "team",
        "PGSSLMODE": "require",
        "PGCONNECT_TIMEOUT": "10",
        "PGOPTIONS": "-c work_mem=1MB -c cmem.team_id=*",
    }
    assert told["PATH"] == os.environ["PATH"]


def test_what_a_program_says_when_it_fails_is_the_reason(nothing_installed: Path):
    """Not its exit code."""
    path = install(nothing_installed / "bin", "pg_dump", version=15)
    Path(path).write_text("#!/bin/sh\necho 'pg_dump: error: permission denied for table teams' >&2\nexit 1\n")

    with pytest.raises(BackupError, match=r"^pg_dump failed: permission denied for table teams$"):
        programs.run([path], {}, lambda line: None)
