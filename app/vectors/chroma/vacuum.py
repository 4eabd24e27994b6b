"""Vacuums a folder that no server uses: removes deleted data from Chroma's log and free pages from its file."""

import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from app.vectors.chroma.folder import FolderLock
from app.vectors.errors import NotInitialized, OwnedElsewhere

_TIMEOUT_SECONDS: Final = 600.0
_POLL_SECONDS: Final = 0.05
_COMMAND: Final = "import sys, chromadb_rust_bindings as chroma; chroma.cli(['chroma', *sys.argv[1:]])"

StopCheck = Callable[[], None]
"""Called regularly during a vacuum; may raise to cancel it, and SQLite then rolls it back."""


def vacuum(folder: Path) -> bool:
    """Vacuum the folder; return False when a server uses it. Raises NotInitialized when Chroma cannot read it."""
    if not folder.exists():
        return True
    lock = FolderLock(folder.with_name(folder.name + ".lock"), owner_name="maintenance")
    try:
        vacuum_locked(folder, lock.acquire(), lambda: None)
    except OwnedElsewhere:
        return False
    finally:
        lock.release()
    return True


def vacuum_locked(folder: Path, lock: int, check_stop: StopCheck) -> None:
    """Vacuum a folder whose lock is held. The child inherits the lock, so the folder stays locked until it ends.

    Raises NotInitialized when that fails or takes too long.
    """
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    with subprocess.Popen(  # noqa: S603 - our own interpreter and a fixed command
        [sys.executable, "-c", _COMMAND, "vacuum", "--path", str(folder), "--force"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        pass_fds=(lock,),
    ) as process:
        try:
            while process.poll() is None and time.monotonic() < deadline:
                check_stop()
                time.sleep(_POLL_SECONDS)
        finally:
            process.kill()
    if process.returncode:
        raise NotInitialized("The vector folder cannot be vacuumed.")
