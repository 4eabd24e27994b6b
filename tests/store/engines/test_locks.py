"""Locks: in order of arrival between threads, and released by the kernel between processes."""

import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest

from app.errors import Unavailable
from app.store.engines.locks import FairLock, FileLock


def test_fair_lock_serves_in_order_of_arrival():
    """Even when the holder asks for it again immediately."""
    lock, served = FairLock(), []
    waiting = [threading.Event() for _ in range(5)]

    def take(index: int) -> None:
        waiting[index].set()
        with lock.turn(10):
            served.append(index)

    threads = [threading.Thread(target=take, args=(index,)) for index in range(5)]
    with lock.turn(10):
        for index, thread in enumerate(threads):
            thread.start()
            waiting[index].wait()
            while len(lock._waiting) <= index:
                time.sleep(0.001)
    with lock.turn(10):
        served.append("again")
    for thread in threads:
        thread.join()

    assert served == [0, 1, 2, 3, 4, "again"]


def test_timeout_waiting_for_a_turn_is_unavailable_and_blocks_nobody():
    """A thread that gives up waiting leaves the queue."""
    lock = FairLock()
    with lock.turn(1), pytest.raises(Unavailable), lock.turn(0.01):
        pass

    with lock.turn(0.01):
        assert lock._held


def test_shared_file_lock_admits_others_and_an_exclusive_one_does_not(tmp_path: Path):
    """Two open files exclude each other like two processes."""
    with closing(FileLock(tmp_path / "lock")) as first, closing(FileLock(tmp_path / "lock")) as second:
        assert (first.try_acquire(exclusive=False), second.try_acquire(exclusive=False)) == (True, True)
        assert not second.try_acquire(exclusive=True)


def test_file_lock_is_free_once_its_owner_is_killed(tmp_path: Path):
    """The file of a dead process does not keep the lock, and only its owner can read it."""
    code = (
        "import sys, time; from pathlib import Path; from app.store.engines.locks import FileLock\n"
        "print(FileLock(Path(sys.argv[1])).try_acquire(exclusive=True), flush=True); time.sleep(60)"
    )
    path = tmp_path / "lock"
    owner = subprocess.Popen([sys.executable, "-c", code, path], stdout=subprocess.PIPE, text=True)
    with closing(FileLock(path)) as lock, owner:
        assert owner.stdout.readline() == "True\n"
        assert not lock.acquire(timeout_seconds=0.05)
        owner.kill()
        assert lock.acquire(timeout_seconds=10)

    assert path.stat().st_mode & 0o777 == 0o600
