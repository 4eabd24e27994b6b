"""A private copy of a database file, including the committed rows of its write-ahead log.

The source and its log are not changed in a single byte, and no file is created next to them. Knows files and SQLite's
locking, not the contents of the database.
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


def take(source: Path, folder: Path, *, timeout_seconds: float = 10.0) -> Path:
    """Copy the database `source` into `folder` and return the path of the copy.

    Raises OSError if it cannot be read, sqlite3.DatabaseError if it is not a database, and SourceBusy if it kept
    changing for `timeout_seconds`.
    """
    source = source.resolve(strict=True)  # the log is next to the file itself, not next to a link
    copy = folder / "source.db"
    # A -shm file means that a program may have the database open in WAL mode. SQLite's backup is then safe, and changes
    # neither the database nor the log. Without a -shm file, opening the database would create -shm and -wal files.
    if _sibling(source, "-shm").exists():
        _copy_with_sqlite(source, copy)
    else:
        _copy_files(source, copy, timeout_seconds)
    return copy


def _copy_with_sqlite(source: Path, copy: Path) -> None:
    uri = f"{source.as_uri()}?mode=ro"
    with (
        contextlib.closing(sqlite3.connect(uri, uri=True, timeout=_BUSY_TIMEOUT_SECONDS)) as reader,
        contextlib.closing(sqlite3.connect(copy)) as writer,
    ):
        reader.backup(writer)


def _copy_files(source: Path, copy: Path, timeout_seconds: float) -> None:
    deadline = time.monotonic() + timeout_seconds
    while True:
        before = _fingerprint(source)
        shutil.copyfile(source, copy)
        for suffix in _LOG_SUFFIXES:
            _copy_if_exists(_sibling(source, suffix), _sibling(copy, suffix))
        if _fingerprint(source) == before:
            return
        if time.monotonic() > deadline:
            raise SourceBusy(f"{source} kept changing while it was copied; stop the program that writes to it")
        time.sleep(_PAUSE_SECONDS)


def _copy_if_exists(source: Path, copy: Path) -> None:
    try:
        shutil.copyfile(source, copy)
    except FileNotFoundError:
        copy.unlink(missing_ok=True)


def _fingerprint(source: Path) -> list[tuple[int, int] | None]:
    return [_size_and_time(_sibling(source, suffix)) for suffix in ("", *_LOG_SUFFIXES, "-shm")]


def _size_and_time(path: Path) -> tuple[int, int] | None:
    try:
        status = path.stat()
    except FileNotFoundError:
        return None
    return status.st_size, status.st_mtime_ns


def _sibling(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
