"""A private copy of somebody's database file, committed rows of its write-ahead log included.

The source and its log stay byte for byte as they are, and no file appears beside them. Knows files and SQLite's
locking, not what the database holds.
"""

import contextlib
import shutil
import sqlite3
import time
from pathlib import Path

_LOG_SUFFIXES = ("-wal", "-journal")
_PAUSE_SECONDS = 0.1
_BUSY_TIMEOUT_SECONDS = 30.0


class SourceBusy(Exception):
    """The source kept changing while it was copied."""


def take(source: Path, folder: Path, *, patience_seconds: float = 10.0) -> Path:
    """Copy the database `source` into `folder` and return the copy's path.

    Raises OSError when it cannot be read, sqlite3.DatabaseError when it is no database, SourceBusy when it kept
    changing for `patience_seconds`.
    """
    source = source.resolve(strict=True)  # the log lies beside the file itself, not beside a link to it
    copy = folder / "source.db"
    # A -shm file means that a program may have the database open in WAL mode. SQLite's own snapshot is then safe, and
    # changes neither the database nor the log. Without it, opening would create -shm and -wal beside the source.
    if _beside(source, "-shm").exists():
        _copy_by_sqlite(source, copy)
    else:
        _copy_files(source, copy, patience_seconds)
    return copy


def _copy_by_sqlite(source: Path, copy: Path) -> None:
    uri = f"{source.as_uri()}?mode=ro"
    with (
        contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_SECONDS)) as reader,
        contextlib.closing(sqlite3.connect(copy)) as writer,
    ):
        reader.backup(writer)


def _copy_files(source: Path, copy: Path, patience_seconds: float) -> None:
    deadline = time.monotonic() + patience_seconds
    while True:
        before = _fingerprint(source)
        shutil.copyfile(source, copy)
        for suffix in _LOG_SUFFIXES:
            _copy_if_there(_beside(source, suffix), _beside(copy, suffix))
        if _fingerprint(source) == before:
            return
        if time.monotonic() > deadline:
            raise SourceBusy(f"{source} kept changing while it was copied; stop the program that writes to it")
        time.sleep(_PAUSE_SECONDS)


def _copy_if_there(source: Path, copy: Path) -> None:
    try:
        shutil.copyfile(source, copy)
    except FileNotFoundError:
        copy.unlink(missing_ok=True)


def _fingerprint(source: Path) -> list[tuple[int, int] | None]:
    return [_size_and_time(_beside(source, suffix)) for suffix in ("", *_LOG_SUFFIXES, "-shm")]


def _size_and_time(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


def _beside(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
