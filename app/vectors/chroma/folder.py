"""One writer per Chroma folder. The kernel's lock decides; the content of the lock file is informational."""

import fcntl
import json
import os
import time
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from app import clock
from app.vectors.errors import OwnedElsewhere

_POLL_SECONDS: Final = 0.02


@dataclass(frozen=True, slots=True)
class FolderOwner:
    """The process that owns the folder. The start token distinguishes it from a later process with the same pid."""

    pid: int
    name: str
    start_token: str
    since_epoch: int

    @property
    def is_alive(self) -> bool:
        """Whether exactly this process is still running."""
        return self.start_token != "" and start_token(self.pid) == self.start_token


class FolderLock:
    """A lock file next to the folder, which survives the folder's deletion. The child that serves it inherits the lock.

    flock() belongs to the open file: it is released as soon as the owner and its child are dead, and cannot go stale.
    """

    def __init__(self, path: Path, *, owner_name: str, takeover_seconds: float = 5.0) -> None:
        self._path = path
        self._owner_name = owner_name
        self._takeover_seconds = takeover_seconds
        self._file: int | None = None

    def acquire(self) -> int:
        """Acquire the lock and return its file descriptor. Waits only for the child of a dead owner.

        Raises OwnedElsewhere when another process owns the folder.
        """
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
            try:
                self._lock(file)
                self._write_owner(file)
            except BaseException:
                os.close(file)
                raise
            self._file = file
        return self._file

    def release(self) -> None:
        """Release the folder."""
        if self._file is not None:
            os.ftruncate(self._file, 0)
            os.close(self._file)
            self._file = None

    def owner(self) -> FolderOwner | None:
        """Return the last owner; None when there was none, or the lock file cannot be read."""
        with suppress(OSError, ValueError, TypeError):
            return FolderOwner(**json.loads(self._path.read_text()))
        return None

    def _lock(self, file: int) -> None:
        deadline = time.monotonic() + self._takeover_seconds
        while True:
            with suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            owner = self.owner()
            if (owner and owner.is_alive) or time.monotonic() > deadline:
                raise OwnedElsewhere(f"The vector folder belongs to {_describe(owner)}; this process runs without it.")
            time.sleep(_POLL_SECONDS)

    def _write_owner(self, file: int) -> None:
        owner = {
            "pid": os.getpid(),
            "name": self._owner_name,
            "start_token": start_token(os.getpid()),
            "since_epoch": clock.now_ms(),
        }
        os.ftruncate(file, 0)
        os.pwrite(file, json.dumps(owner).encode(), 0)


def start_token(pid: int) -> str:
    """Return a process's start time in clock ticks since boot, which distinguishes processes with the same pid.

    Empty when there is no such process. Without /proc, it is the pid itself.
    """
    if not Path("/proc/self/stat").exists():
        with suppress(OSError):
            os.kill(pid, 0)
            return str(pid)
        return ""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return ""
    state, started = fields[0], fields[19]
    return "" if state in "ZX" else started


def _describe(owner: FolderOwner | None) -> str:
    return f"process {owner.pid} ({owner.name})" if owner else "another process"
