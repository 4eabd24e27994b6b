"""PostgreSQL's client programs: found, checked for their version, and given no secrets that others can read."""

import os
from pathlib import Path

import pytest

from app.store.backup import BackupError, programs


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine without PostgreSQL; return a folder whose `bin` is in PATH."""
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


def test_newest_program_is_used(nothing_installed: Path):
    """Whether it is in PATH, or where Debian installs several versions."""
    install(nothing_installed / "postgresql/9/bin", "pg_dump", version=9)
    newest = install(nothing_installed / "postgresql/17/bin", "pg_dump", version=17)
    install(nothing_installed / "bin", "pg_dump", version=15)

    assert programs.find_program("pg_dump", server=16) == newest


def test_missing_program_is_reported(nothing_installed: Path):
    """The error says what to install."""
    with pytest.raises(BackupError) as failure:
        programs.find_program("pg_dump", server=16)

    assert str(failure.value) == (
        "pg_dump is not installed: install PostgreSQL's client programs of version 16 or newer."
    )


def test_outdated_program_is_reported(nothing_installed: Path):
    """Its own error would not say what to do."""
    install(nothing_installed / "bin", "pg_dump", version=15)

    with pytest.raises(BackupError) as failure:
        programs.find_program("pg_dump", server=16)

    assert str(failure.value) == (
        "pg_dump has version 15, but the server has 16: install PostgreSQL's client programs of version 16 or newer."
    )


def test_url_is_passed_in_the_environment(monkeypatch: pytest.MonkeyPatch):
    """Including the password; other variables stay as they are."""
    monkeypatch.setenv("PGOPTIONS", "-c work_mem=1MB")
    env = programs.environment("postgresql+psycopg://owner:se%20cret@db:5433/team?sslmode=require")

    variables = {name: value for name, value in env.items() if name.startswith("PG")}
    assert variables == {
        "PGHOST": "db",
        "PGPORT": "5433",
        "PGUSER": "owner",
        "PGPASSWORD": "se cret",
        "PGDATABASE": "team",
        "PGSSLMODE": "require",
        "PGCONNECT_TIMEOUT": "10",
        "PGOPTIONS": "-c work_mem=1MB -c cmem.team_id=*",
    }
    assert env["PATH"] == os.environ["PATH"]


def test_error_of_a_failed_program_is_reported(nothing_installed: Path):
    """Its own text rather than its exit code."""
    path = install(nothing_installed / "bin", "pg_dump", version=15)
    Path(path).write_text("#!/bin/sh\necho 'pg_dump: error: permission denied for table teams' >&2\nexit 1\n")

    with pytest.raises(BackupError, match=r"^pg_dump failed: permission denied for table teams$"):
        programs.run([path], {}, lambda line: None)
