"""The very first start: a team, a project and a key, once, however many processes start at the same time."""

import os
import signal
import socket
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest

from app.services.operations import fulltext_check
from tests.serving import Home, Started, serving

pytestmark = pytest.mark.process


def rows(home: Home, sql: str) -> list[tuple[object, ...]]:
    with home.database() as database, database.read() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(sql)]


def test_several_first_starts_at_once_make_one_team_and_print_one_key(home: Home):
    """Three processes on one empty database: all serve, one prints the key, and it works with each of them."""
    with ExitStack() as stack, ThreadPoolExecutor(3) as pool:
        started: list[Started] = list(pool.map(lambda _: stack.enter_context(home.serving()), range(3)))
        keys = [each.exported["KEY"] for each in started if "KEY" in each.exported]
        headers = {"Authorization": f"Bearer {keys[0]}"}
        codes = [httpx.get(f"{each.url}/v1/memories", headers=headers, trust_env=False).status_code for each in started]

    assert (len(keys), codes) == (1, [200] * 3)
    assert rows(home, "SELECT slug FROM teams") == [("default",)]
    assert rows(home, "SELECT slug FROM projects") == [("default",)]
    assert rows(home, "SELECT scopes FROM api_keys") == [('["*"]',)]


def test_the_key_is_in_no_file(tmp_path: Path):
    """It is printed once; only a hash is stored."""
    with serving(tmp_path) as started:
        secret = started.exported["KEY"].rsplit("_", 1)[1].encode()

    files = [path for path in tmp_path.rglob("*") if path.is_file()]
    assert files
    assert [path.name for path in files if secret in path.read_bytes()] == []


def test_a_first_start_that_cannot_listen_leaves_the_key_to_the_next(home: Home):
    """A port in use does not waste the only time that the key is shown."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        failed = home.run("serve", "--port", str(other.getsockname()[1]))

    with home.serving() as started:
        assert (failed.returncode, "KEY" in started.exported) == (1, True)


def test_sigterm_stops_the_server(home: Home):
    """Within the grace period, without an error, and with an intact database."""
    with home.serving() as started:
        os.kill(started.process.pid, signal.SIGTERM)
        code = started.process.wait(timeout=20)

    assert code in (0, -signal.SIGTERM)
    with home.database() as database:
        assert fulltext_check.faults(database) == []
