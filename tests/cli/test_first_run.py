"""The first start of all: a team, a project and a key, once, however many processes start at once."""

import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from pathlib import Path

import httpx

from app.services import integrity
from app.store.database import Database
from tests.serving import ROOT, Started, serve_command, serving


def rows(folder: Path, sql: str) -> list[tuple[object, ...]]:
    with closing(Database(f"sqlite:///{folder / 'cmem.db'}")) as database, database.read() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(sql)]


def test_several_first_starts_at_once_make_one_team_and_print_one_key(tmp_path: Path):
    """Three processes on one empty folder: all serve, one tells the key, and it works at each."""
    with ExitStack() as stack, ThreadPoolExecutor(3) as pool:
        started: list[Started] = list(pool.map(lambda _: stack.enter_context(serving(tmp_path)), range(3)))
        keys = [each.exported["KEY"] for each in started if "KEY" in each.exported]
        headers = {"Authorization": f"Bearer {keys[0]}"}
        codes = [httpx.get(f"{each.url}/v1/memories", headers=headers, trust_env=False).status_code for each in started]

    assert (len(keys), codes) == (1, [200] * 3)
    assert rows(tmp_path, "SELECT slug FROM teams") == [("default",)]
    assert rows(tmp_path, "SELECT slug FROM projects") == [("default",)]
    assert rows(tmp_path, "SELECT scopes FROM api_keys") == [('["*"]',)]


def test_the_key_is_in_no_file(tmp_path: Path):
    """It is printed once; what is kept is a hash."""
    with serving(tmp_path) as started:
        secret = started.exported["KEY"].rsplit("_", 1)[1].encode()

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path.name for path in files if secret in path.read_bytes()] == []


def test_a_first_start_that_cannot_listen_keeps_its_key_for_the_next(tmp_path: Path):
    """A taken port does not use up the one time that the key is shown."""
    with serving(tmp_path / "other") as other:
        command, environment = serve_command(tmp_path / "own", "--port", other.url.rsplit(":", 1)[1])
        failed = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)

    with serving(tmp_path / "own") as started:
        assert (failed.returncode, "KEY" in started.exported) == (1, True)


def test_it_stops_when_asked_to(tmp_path: Path):
    """SIGTERM ends it within its grace, without an error, and leaves the database whole."""
    with serving(tmp_path) as started:
        os.kill(started.process.pid, signal.SIGTERM)
        code = started.process.wait(timeout=20)

    assert code in (0, -signal.SIGTERM)
    with closing(Database(f"sqlite:///{tmp_path / 'cmem.db'}")) as database:
        assert integrity.faults(database) == []
