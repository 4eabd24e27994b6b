"""The lock of a Chroma folder."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from app.vectors.chroma.folder import FolderLock, FolderOwner, start_token
from app.vectors.errors import NotInitialized

HOLD = """
import sys, pathlib
from app.vectors.chroma.folder import FolderLock
FolderLock(pathlib.Path(sys.argv[1]), owner_name="first").acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "not" / "there" / "chroma.lock"


@pytest.fixture
def other_process(path: Path):
    """Another process that holds the lock."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout.readline() == "held\n"
        yield process
        process.kill()


def test_lock_file_names_the_owner(path: Path):
    """For people who look into it."""
    lock = FolderLock(path, owner_name="serve")
    lock.acquire()
    owner = lock.owner()
    assert (owner.pid, owner.name, owner.is_alive) == (os.getpid(), "serve", True)
    lock.release()


def test_running_owner_keeps_the_folder_and_is_named(path: Path, other_process):
    """The error of the second process names it, without waiting."""
    with pytest.raises(NotInitialized, match=rf"process {other_process.pid} \(first\)"):
        FolderLock(path, owner_name="second").acquire()


def test_folder_of_a_killed_owner_is_free_immediately(path: Path, other_process):
    """kill -9 leaves the file behind, but no lock."""
    other_process.send_signal(signal.SIGKILL)
    other_process.wait()
    lock = FolderLock(path, owner_name="second", takeover_seconds=1)
    lock.acquire()
    assert lock.owner().name == "second"
    lock.release()


def test_process_with_a_recycled_pid_is_not_the_owner(path: Path):
    """The start token distinguishes it from the earlier process."""
    assert not FolderOwner(os.getpid(), "first", start_token="1", since_epoch=0).is_alive


@pytest.mark.parametrize("content", ["", "{", "[1]", json.dumps({"pid": 1}), "\x00\xff"])
def test_corrupt_lock_file_is_ignored(path: Path, content: str):
    """Only the kernel's lock decides."""
    path.parent.mkdir(parents=True)
    path.write_text(content)
    lock = FolderLock(path, owner_name="serve")
    lock.acquire()
    assert lock.owner().name == "serve"
    lock.release()


def test_released_folder_is_free(path: Path):
    """The next owner does not wait for the process to end."""
    first, second = FolderLock(path, owner_name="first"), FolderLock(path, owner_name="second")
    first.acquire()
    first.release()
    second.acquire()
    assert second.owner().name == "second"
    second.release()


def test_dead_process_has_no_start_token():
    """Nor does a zombie."""
    process = subprocess.Popen([sys.executable, "-c", "pass"])
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert start_token(process.pid) == ""
    process.wait()
