"""The embedded Chroma server in its child process."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import httpx
import pytest

from app.vectors.chroma.folder import start_token
from app.vectors.chroma.server import ChildServer, raise_open_files_limit
from app.vectors.errors import NotInitialized

SERVE = """
import sys, pathlib
from app.vectors.chroma.server import ChildServer
server = ChildServer(pathlib.Path(sys.argv[1]))
print(server.address(), server.pid, file=sys.stderr, flush=True)
sys.stdin.read()
"""


def responds(address: str) -> bool:
    return httpx.get(f"{address}/api/v2/heartbeat", timeout=5).is_success


def wait_until_dead(pid: int, token: str) -> None:
    deadline = time.monotonic() + 10
    while start_token(pid) == token and time.monotonic() < deadline:
        time.sleep(0.01)
    assert start_token(pid) != token


def test_folder_is_created_and_served_on_loopback(server: ChildServer, tmp_path: Path):
    """A first start only needs a path."""
    assert server.address().startswith("http://127.0.0.1:")
    assert responds(server.address())
    assert (tmp_path / "data" / "chroma").is_dir()


def test_dead_child_is_restarted(server: ChildServer):
    """The next caller gets the URL of a new one."""
    server.address()
    os.kill(server.pid, signal.SIGKILL)
    os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
    assert responds(server.address())


def test_closing_stops_the_child_and_releases_the_folder(server: ChildServer, tmp_path: Path):
    """Another owner can take over immediately."""
    server.address()
    child, token = server.pid, start_token(server.pid)
    server.close()
    assert start_token(child) != token
    next_owner = ChildServer(tmp_path / "data" / "chroma")
    assert responds(next_owner.address())
    next_owner.close()


def test_second_owner_of_a_folder_is_rejected(server: ChildServer, tmp_path: Path):
    """Two servers with the same folder would corrupt it."""
    server.address()
    second = ChildServer(tmp_path / "data" / "chroma", owner_name="second")
    with pytest.raises(NotInitialized, match="cmem-server"):
        second.address()


def test_child_ends_with_a_killed_parent_and_the_folder_can_be_taken_over(tmp_path: Path):
    """kill -9 of the server leaves neither an orphan process nor a lock; the next start takes seconds."""
    folder = tmp_path / "chroma"
    parent = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(folder)], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    address, child = parent.stderr.readline().split()
    token = start_token(int(child))
    assert responds(address)
    parent.kill()
    parent.communicate()
    started = time.monotonic()
    next_owner = ChildServer(folder)
    assert responds(next_owner.address())
    assert time.monotonic() - started < 5
    wait_until_dead(int(child), token)
    next_owner.close()


def test_child_outlives_the_thread_that_started_it(server: ChildServer):
    """It does not end with a worker thread."""
    thread = threading.Thread(target=server.address)
    thread.start()
    thread.join()
    assert responds(server.address())


def test_folder_that_cannot_be_created_raises_not_initialized(tmp_path: Path):
    """For example, because there is a file of that name."""
    (tmp_path / "chroma").write_text("not a folder")
    server = ChildServer(tmp_path / "chroma")
    with pytest.raises(NotInitialized, match="cannot be used"):
        server.address()
    server.close()


def test_open_files_limit_is_raised_to_the_hard_limit():
    """Each collection needs four."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    assert raise_open_files_limit() == hard


def test_queries_are_rejected_during_a_vacuum_which_can_be_cancelled(server: ChildServer):
    """They do not wait. After the vacuum, cancelled or completed, the server is available again."""
    server.address()

    class Cancelled(Exception):
        pass

    def check_stop() -> None:
        with pytest.raises(NotInitialized, match="vacuumed"):
            server.address()
        raise Cancelled

    with pytest.raises(Cancelled):
        server.vacuum(check_stop)
    assert responds(server.address())
    server.vacuum(lambda: None)
    assert responds(server.address())
