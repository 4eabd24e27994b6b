"""Files that their owner alone may read, and that are on the disk when it is said that they are."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Final

_READ_BYTES: Final = 1024 * 1024


@contextmanager
def private(path: Path) -> Iterator[IO[bytes]]:
    """Yield a new file that its owner alone may read; on leaving it is on the disk."""
    path.unlink(missing_ok=True)
    with os.fdopen(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600), "wb") as file:
        yield file
        file.flush()
        os.fsync(file.fileno())


def copy(source: Path, target: Path) -> None:
    """Copy a file for its owner alone; the folder is made."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as reading, private(target) as made:
        shutil.copyfileobj(reading, made, _READ_BYTES)


def sync(path: Path) -> None:
    """Bring a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
