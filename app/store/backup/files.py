"""Files that only their owner can read, flushed to disk before they count as written."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

_CHUNK_BYTES: Final = 1024 * 1024


@contextmanager
def create_private(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file that only its owner can read; it is on disk when the block ends."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def copy_private(source: Path, target: Path) -> None:
    """Copy a file so that only its owner can read the copy; the folder is created."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as reading, create_private(target) as writing:
        shutil.copyfileobj(reading, writing, _CHUNK_BYTES)


def fsync(path: Path) -> None:
    """Flush a file or folder to disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
