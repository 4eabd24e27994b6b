"""A fair lock between the threads of this process, and a file lock between processes."""

import fcntl
import os
import threading
import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.errors import Unavailable


class FairLock:
    """First come, first served; with `threading.Lock`, the thread that just released it can win again and again."""

    def __init__(self) -> None:
        """Start unlocked."""
        self._guard = threading.Lock()
        self._waiting: deque[threading.Event] = deque()
        self._held = False

    @contextmanager
    def turn(self, timeout_seconds: float) -> Iterator[None]:
        """Hold the lock; Unavailable when the turn does not come in time."""
        self._acquire(timeout_seconds)
        try:
            yield
        finally:
            self._release()

    def _acquire(self, timeout_seconds: float) -> None:
        with self._guard:
            if not self._held:
                self._held = True
                return
            mine = threading.Event()
            self._waiting.append(mine)
        if not mine.wait(timeout_seconds):
            self._give_up(mine)

    def _give_up(self, mine: threading.Event) -> None:
        with self._guard:
            if mine.is_set():  # the turn came just as we stopped waiting
                self._hand_over()
            else:
                self._waiting.remove(mine)
        raise Unavailable("The database is busy writing.")

    def _release(self) -> None:
        with self._guard:
            self._hand_over()

    def _hand_over(self) -> None:
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self._held = False


class FileLock:
    """An flock(): the kernel releases it when its owner dies, so it cannot go stale."""

    def __init__(self, path: Path) -> None:
        """Open the lock file, and create it if needed; nothing is locked yet."""
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)

    @contextmanager
    def held(self) -> Iterator[None]:
        """Wait for the lock in the kernel's queue, and hold it."""
        fcntl.flock(self._file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(self._file, fcntl.LOCK_UN)

    def acquire(self, *, timeout_seconds: float) -> bool:
        """Take the lock until close(); False when another process holds it for that long."""
        deadline = time.monotonic() + timeout_seconds
        while True:
            try:
                fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(0.02)
            else:
                return True

    def try_acquire(self, *, exclusive: bool) -> bool:
        """Take the lock, exclusive or shared, until close(); False when that would have to wait."""
        try:
            fcntl.flock(self._file, (fcntl.LOCK_EX if exclusive else fcntl.LOCK_SH) | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True

    def close(self) -> None:
        """Close the file, which releases the lock."""
        os.close(self._file)
