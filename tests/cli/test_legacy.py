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
from app.cli.legacy import legacy
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
    return CliRunner().invoke(legacy, ["import", str(path), "--team", "default", *options])


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
    """Each repaired row comes as table, id and message."""
    with closing(sqlite3.connect(sample, isolation_level=None)) as source:
        source.execute("UPDATE observations SET files_read = 'a.py'")
    assert json.loads(import_(sample, "--json").output)["warnings"] == [
        {"table": "observations", "id": 1, "message": "files_read: plain text instead of JSON"}
    ]


def test_a_dry_run_says_what_it_would_do(store: Database, sample):
    """Without --json the report is a table, and a rehearsal says that it is one."""
    result = import_(sample, "--dry-run")
    assert result.output.startswith("Would import claude-mem:")
    assert ["observations", "1", "0", "0"] in [line.split() for line in result.output.splitlines()]
    assert fulltext_check.count_memories(store) == 0


def test_internal_rows_come_in_on_request(sample):
    """The switches reach the reader."""
    with closing(sqlite3.connect(sample, isolation_level=None)) as source:
        source.execute("UPDATE observations SET project = 'observer-sessions'")
    assert json.loads(import_(sample, "--json", "--dry-run").output)["observations"]["skipped"] == 1
    assert json.loads(import_(sample, "--json", "--include-internal").output)["observations"]["created"] == 1


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (["--project-map", "shop"], "write it as OLD=NEW"),
        (["--team", "nobody"], "There is no such team."),
    ],
)
def test_a_wrong_option_ends_in_one_clear_line(sample, options, complaint):
    """The command says what is wrong and exits non-zero."""
    result = import_(sample, *options)
    assert result.exit_code != 0
    assert complaint in result.output.splitlines()[-1]


def test_a_file_that_is_no_database_ends_in_one_clear_line(tmp_path):
    """The command names the file and exits non-zero."""
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
def test_the_shared_databases_come_in_whole(name, totals):
    """The counts add up to the rows, and a second run makes nothing."""
    first, second = (json.loads(import_(LEGACY_FIXTURES / name, "--json").output) for _ in range(2))
    assert {noun: sum(first[noun].values()) for noun in totals} == totals
    assert [second[noun]["created"] for noun in ("projects", *totals)] == [0] * 5


def test_a_writer_at_work_is_tolerated(sample, tmp_path):
    """A program that holds an open transaction on the source neither stops the import nor is disturbed."""
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
