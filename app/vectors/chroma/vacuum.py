"""Vacuums a folder that nobody serves: what was deleted leaves Chroma's log and the free pages of its file."""

import subprocess
import sys
from pathlib import Path
from typing import Final

from app.vectors.chroma.folder import FolderLock
from app.vectors.failures import NotInitialized, OwnedElsewhere

_TIMEOUT_SECONDS: Final = 600.0
_COMMAND: Final = "import sys, chromadb_rust_bindings as chroma; chroma.cli(['chroma', *sys.argv[1:]])"


def vacuum(folder: Path) -> bool:
    """Vacuum the folder; False when a server has it. Raises NotInitialized when Chroma cannot read it."""
    if not folder.exists():
        return True
    lock = FolderLock(folder.with_name(folder.name + ".lock"), owner_name="maintenance")
    try:
        lock.acquire()
    except OwnedElsewhere:
        return False
    try:
        done = subprocess.run(  # noqa: S603 - our own interpreter and a fixed command
            [sys.executable, "-c", _COMMAND, "vacuum", "--path", str(folder), "--force"],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    finally:
        lock.release()
    if done.returncode:
        raise NotInitialized("The vector folder cannot be vacuumed.")
    return True
