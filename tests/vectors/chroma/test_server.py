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


def answers(address: str) -> bool:
    return httpx.get(f"{address}/api/v2/heartbeat", timeout=5).is_success


def wait_until_dead(pid: int, token: str) -> None:
    deadline = time.monotonic() + 10
    while start_token(pid) == token and time.monotonic() < deadline:
        time.sleep(0.01)
    assert start_token(pid) != token


def test_the_folder_is_made_and_served_on_loopback(server: ChildServer, tmp_path: Path):
    """A first start needs nothing but a path."""
    assert server.address().startswith("http://127.0.0.1:")
    assert answers(server.address())
    assert (tmp_path / "data" / "chroma").is_dir()


def test_a_child_that_died_is_started_again(server: ChildServer):
    """The next caller gets an address that answers."""
    server.address()
    os.kill(server.pid, signal.SIGKILL)
    os.waitid(os.P_PID, server.pid, os.WEXITED | os.WNOWAIT)
    assert answers(server.address())


def test_closing_stops_the_child_and_frees_the_folder(server: ChildServer, tmp_path: Path):
    """Another owner can follow at once."""
    server.address()
    child, token = server.pid, start_token(server.pid)
    server.close()
    assert start_token(child) != token
    follower = ChildServer(tmp_path / "data" / "chroma")
    assert answers(follower.address())
    follower.close()


def test_a_second_owner_of_the_folder_is_refused(server: ChildServer, tmp_path: Path):
    """Two servers on one folder would corrupt it."""
    server.address()
    second = ChildServer(tmp_path / "data" / "chroma", owner_name="second")
    with pytest.raises(NotInitialized, match="cmem-server"):
        second.address()


def test_the_child_dies_with_a_killed_parent_and_the_folder_is_taken_over(tmp_path: Path):
    """kill -9 of the server leaves neither an orphan nor a lock: the next start takes seconds."""
    folder = tmp_path / "chroma"
    parent = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(folder)], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    address, child = parent.stderr.readline().split()
    token = start_token(int(child))
    assert answers(address)
    parent.kill()
    parent.communicate()
    started = time.monotonic()
    follower = ChildServer(folder)
    assert answers(follower.address())
    assert time.monotonic() - started < 5
    wait_until_dead(int(child), token)
    follower.close()


def test_the_child_outlives_the_thread_that_started_it(server: ChildServer):
    """A worker thread that ends takes nothing with it."""
    thread = threading.Thread(target=server.address)
    thread.start()
    thread.join()
    assert answers(server.address())


def test_a_folder_that_cannot_be_made_is_no_crash(tmp_path: Path):
    """A file where the folder should be is a state of the index, told in words."""
    (tmp_path / "chroma").write_text("not a folder")
    server = ChildServer(tmp_path / "chroma")
    with pytest.raises(NotInitialized, match="cannot be used"):
        server.address()
    server.close()


def test_open_files_are_allowed_up_to_the_hard_limit():
    """Each collection takes four."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(soft, 256), hard))
    assert raise_open_files_limit() == hard


def test_a_vacuum_refuses_whoever_asks_meanwhile_and_can_be_ended(server: ChildServer):
    """Nobody is kept waiting; ended half-way or done, the folder answers again at once."""
    server.address()

    class Ended(Exception):
        pass

    def go_on() -> None:
        with pytest.raises(NotInitialized, match="vacuumed"):
            server.address()
        raise Ended

    with pytest.raises(Ended):
        server.vacuum(go_on)
    assert answers(server.address())
    server.vacuum(lambda: None)
    assert answers(server.address())
