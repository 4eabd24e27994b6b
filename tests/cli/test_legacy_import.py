"""`legacy import` as a person and as a script use it."""

import json
import shutil
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner

from app.caller import server_owner
from app.cli import main
from app.services.identity import teams
from app.services.operations import fulltext_check
from app.store.database import Database
from tests import SHARED
from tests.legacy import builders

LEGACY_FIXTURES = SHARED / "fixtures" / "legacy"


@pytest.fixture(autouse=True)
def team(store: Database):
    with store.write() as connection:
        teams.create(connection, server_owner(), name="default")


@pytest.fixture
def sample(tmp_path):
    return builders.sample(tmp_path / "claude-mem.db")


def import_(path: Path, *options: str):
    return CliRunner().invoke(main, ["legacy", "import", str(path), "--team", "default", *options])


def test_the_report_is_exactly_what_scripts_rely_on(sample):
    """--json prints the origin, the counts by noun and the warnings, and nothing else."""
    report = json.loads(import_(sample, "--json").output)
    assert report.pop("origin").startswith("claude-mem:")
    made = {"created": 1, "skipped": 0, "failed": 0}
    assert report == {
        "dryRun": False,
        "projects": made,
        "sessions": made,
        "observations": made,
        "summaries": made,
        "prompts": made,
        "warnings": [],
    }


def test_a_warning_names_table_and_row(sample):
    """Each repaired row is reported with its table, id and a message."""
    with closing(sqlite3.connect(sample, isolation_level=None)) as source:
        source.execute("UPDATE observations SET files_read = 'a.py'")
    assert json.loads(import_(sample, "--json").output)["warnings"] == [
        {"table": "observations", "id": 1, "message": "files_read: plain text instead of JSON"}
    ]


def test_a_dry_run_says_what_it_would_do(store: Database, sample):
    """Without --json the report is a table, which says that nothing was changed."""
    result = import_(sample, "--dry-run")
    assert result.output.startswith("Would import claude-mem:")
    assert ["observations", "1", "0", "0"] in [line.split() for line in result.output.splitlines()]
    assert fulltext_check.count_memories(store) == 0


def test_internal_rows_are_imported_on_request(sample):
    """The options reach the reader."""
    with closing(sqlite3.connect(sample, isolation_level=None)) as source:
        source.execute("UPDATE observations SET project = 'observer-sessions'")
    assert json.loads(import_(sample, "--json", "--dry-run").output)["observations"]["skipped"] == 1
    assert json.loads(import_(sample, "--json", "--include-internal").output)["observations"]["created"] == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--project-map", "shop"], "must be OLD=NEW"),
        (["--team", "nobody"], "There is no such team."),
    ],
)
def test_a_wrong_option_ends_in_one_clear_line(sample, options, complaint):
    """The command says what is wrong, and its exit code is not 0."""
    result = import_(sample, *options)
    assert result.exit_code != 0
    assert complaint in result.output.splitlines()[-1]


def test_a_file_that_is_not_a_database_ends_in_one_clear_line(tmp_path):
    """The command names the file and exits 1."""
    other = tmp_path / "notes.txt"
    other.write_text("not a database, " * 100)
    result = import_(other)
    assert (result.exit_code, len(result.output.splitlines())) == (1, 1)
    assert "notes.txt is not a readable SQLite database" in result.output


@pytest.mark.skipif(not LEGACY_FIXTURES.is_dir(), reason=f"no shared fixtures at {LEGACY_FIXTURES}; set CMEM_SHARED")
@pytest.mark.parametrize(
    ("name", "totals"),
    [
        ("claude-mem.db", {"sessions": 9, "observations": 27, "summaries": 9, "prompts": 14}),
        ("dirty.db", {"sessions": 10, "observations": 33, "summaries": 9, "prompts": 15}),
    ],
)
def test_the_shared_databases_are_imported_completely(name, totals):
    """The counts add up to the number of rows, and a second run creates nothing."""
    first, second = (json.loads(import_(LEGACY_FIXTURES / name, "--json").output) for _ in range(2))
    assert {noun: sum(first[noun].values()) for noun in totals} == totals
    assert [second[noun]["created"] for noun in ("projects", *totals)] == [0] * 5


def test_a_source_that_is_being_written_can_be_imported(sample, tmp_path):
    """A program with an open transaction on the source neither blocks the import nor is disturbed by it."""
    copy = Path(shutil.copyfile(sample, tmp_path / "live.db"))
    hold = "import sqlite3, sys; c = sqlite3.connect(sys.argv[1], isolation_level=None); c.execute('BEGIN IMMEDIATE');"
    hold += "c.execute('DELETE FROM observations'); print('held', flush=True); sys.stdin.read(); c.execute('COMMIT')"
    writer = subprocess.Popen(
        [sys.executable, "-c", hold, copy], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert writer.stdout is not None
        assert writer.stdout.readline() == "held\n"
        report = json.loads(import_(copy, "--json").output)
    finally:
        writer.communicate()
    assert report["observations"]["created"] == 1
    assert writer.returncode == 0
