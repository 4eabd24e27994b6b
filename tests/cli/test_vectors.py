"""`vectors` as a person and as a script use it."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.caller import server_owner
from app.cli import main
from app.cli.vectors import vectors
from app.services.identity import teams
from app.services.memories import memories
from app.services.projects import projects
from app.store.database import Database
from app.vectors.chroma.server import ChildServer
from tests.conftest import Server
from tests.serving import ROOT

pytestmark = pytest.mark.process


@pytest.fixture
def project_id(store: Database, monkeypatch: pytest.MonkeyPatch) -> str:
    """A project with three memories."""
    monkeypatch.setenv("CMEM_VECTORS", "embedded")
    with store.write() as connection:
        caller = server_owner().within(teams.create(connection, server_owner(), name="team").id)
        made = projects.create(connection, caller, name="project")
        for number in range(3):
            new = memories.NewMemory(project_id=made.id, kind="manual", type="manual", narrative=f"Memory {number}.")
            memories.add(connection, caller, new)
    return made.id


def run(*arguments: str) -> Result:
    return CliRunner().invoke(vectors, arguments)


def printed(*arguments: str) -> dict:
    result = run(*arguments, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_a_backfill_indexes_everything_and_a_second_one_changes_nothing(project_id: str):
    """Then `verify` finds no difference."""
    for _ in range(2):
        assert printed("backfill")["memories"] == 3
    found = printed("verify", "--dry-run")
    assert {name: found[name] for name in ("documents", "missing", "stale", "ghost", "pending")} == {
        "documents": 3,
        "missing": 0,
        "stale": 0,
        "ghost": 0,
        "pending": 0,
    }


def test_the_status_has_the_names_of_the_api(project_id: str):
    """Scripts can read either."""
    shown = printed("status")
    (project,) = shown["projects"]
    assert (project["projectId"], project["memories"], project["pending"]) == (project_id, 3, 3)
    assert (shown["state"], shown["lastError"]) == ("ready", None)


def test_watching_ends_when_nothing_is_pending(
    start_server: Callable[..., Server], project_id: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """One line per poll, while a server that was started later does the work; then the table for people."""
    monkeypatch.setattr("app.cli.vectors._WATCH_SECONDS", 0.05)
    command = [sys.executable, "-c", INTERRUPTIBLE, "vectors", "status", "--watch", "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as watching:
        first = json.loads(watching.stdout.readline())
        start_server(vectors="embedded", data_dir=tmp_path / "data")
        looks = [first, *map(json.loads, watching.communicate(timeout=60)[0].splitlines())]

    assert watching.returncode == 0
    assert [(look["pending"], look["indexed"]) for look in (looks[0], looks[-1])] == [(3, 0), (0, 3)]
    assert looks[-1]["projects"][0]["projectId"] == project_id
    shown = run("status", "--watch", "--team", "team").stdout
    assert shown.splitlines()[1].split()[:4] == [project_id, "3", "3", "0"]


INTERRUPTIBLE = """
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)  # what a shell runs in the background ignores it
from app.cli import main
main(sys.argv[1:])
"""


def test_watching_can_be_interrupted(project_id: str):
    """Without a server nothing changes; Ctrl-C ends it without a stack trace."""
    command = [sys.executable, "-c", INTERRUPTIBLE, "vectors", "status", "--watch", "--json"]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as watching:
        assert json.loads(watching.stdout.readline())["pending"] == 3
        watching.send_signal(signal.SIGINT)
        _, errors = watching.communicate(timeout=30)

    assert (watching.returncode, errors.strip()) == (1, "Aborted!")


def test_one_project_of_one_team_can_be_named(project_id: str):
    """By id or slug."""
    assert printed("rebuild", "--team", "team", "--project", "project")["memories"] == 3
    assert run("verify", "--project", "project").exit_code == 2
    assert run("verify", "--team", "no-such-team").exit_code == 1


def test_the_probe_reaches_every_stage(project_id: str):
    """The last one is `done`."""
    assert printed("probe")["stage"] == "done"


def test_the_probe_exits_1_with_the_stage_that_failed(project_id: str, tmp_path: Path):
    """A script can rely on it."""
    (tmp_path / "data" / "chroma").write_text("not a folder")
    result = run("probe")
    assert result.exit_code == 1
    assert result.stdout.startswith("connect: ")


@pytest.mark.parametrize("variable", ["CMEM_VECTORS", "CMEM_EMBEDDER"])
def test_a_repair_is_refused_in_one_line_when_vectors_are_off(project_id: str, monkeypatch, variable: str):
    """The line names the settings."""
    monkeypatch.setenv(variable, "off")
    result = run("verify")
    assert result.exit_code == 1
    assert "Vectors are off" in result.output


def test_a_running_server_is_asked_to_do_it(project_id: str, start_server: Callable[..., Server], tmp_path: Path):
    """The folder has one owner, and the command does not compete with it."""
    start_server(vectors="embedded", data_dir=tmp_path / "data")
    assert printed("backfill", "--team", "team")["memories"] == 3
    assert printed("verify", "--dry-run")["missing"] == 0
    assert printed("probe")["stage"] == "done"


def test_the_status_names_the_server_that_has_the_index(
    project_id: str, start_server: Callable[..., Server], tmp_path: Path
):
    """It must not look as if there were no index yet."""
    start_server(vectors="embedded", data_dir=tmp_path / "data")
    assert printed("probe")["stage"] == "done"  # by now the server has it
    shown = printed("status")
    assert (shown["state"], "belongs to process" in shown["lastError"]) == ("elsewhere", True)


def test_adopting_a_folder_that_is_not_chromas_is_refused_in_one_line(project_id: str, tmp_path: Path):
    """The line names the folder."""
    (tmp_path / "empty").mkdir()
    result = CliRunner().invoke(main, ["legacy", "adopt-vectors", str(tmp_path / "empty"), "--team", "team"])
    assert (result.exit_code, "is not a Chroma folder" in result.output) == (1, True)


def test_adopting_prints_what_was_taken_over(project_id: str, tmp_path: Path):
    """Scripts read the counts; nothing was imported here, so nothing is taken over."""
    server = ChildServer(tmp_path / "theirs")
    server.address()
    server.close()
    result = CliRunner().invoke(main, ["legacy", "adopt-vectors", str(tmp_path / "theirs"), "--team", "team", "--json"])
    assert json.loads(result.stdout) == {"vectors": 0, "otherModel": 0, "adopted": 0, "embedded": 0, "projects": 0}
