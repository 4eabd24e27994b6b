"""Vacuums a folder that nobody serves: what was deleted leaves Chroma's log and the free pages of its file."""

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

GoOn = Callable[[], None]
"""Called again and again meanwhile; raises to end it where it is, which SQLite undoes."""


def vacuum(folder: Path) -> bool:
    """Vacuum the folder; False when a server has it. Raises NotInitialized when Chroma cannot read it."""
    if not folder.exists():
        return True
    lock = FolderLock(folder.with_name(folder.name + ".lock"), owner_name="maintenance")
    try:
        vacuum_owned(folder, lock.acquire(), lambda: None)
    except OwnedElsewhere:
        return False
    finally:
        lock.release()
    return True


def vacuum_owned(folder: Path, lock: int, go_on: GoOn) -> None:
    """Vacuum a folder whose lock is held; it is passed on, so that nobody else has the folder before this ends."""
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
                go_on()
                time.sleep(_POLL_SECONDS)
        finally:
            process.kill()
    if process.returncode:
        raise NotInitialized("The vector folder cannot be vacuumed.")
