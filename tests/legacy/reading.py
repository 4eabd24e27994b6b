"""Reads a claude-mem database in one call."""

from pathlib import Path

from app.legacy import reader
from app.legacy.shapes import ReaderOptions

DEFAULT = ReaderOptions()


def read_all(path: Path, options: ReaderOptions = DEFAULT) -> list:
    """Return the outcome of every memory row."""
    with reader.open_copy(path, options) as database:
        return list(database.memories())


def read_one(path: Path, options: ReaderOptions = DEFAULT):
    """Return the outcome of the only memory row."""
    (entry,) = read_all(path, options)
    return entry


def read_sessions(path: Path, options: ReaderOptions = DEFAULT) -> list:
    """Return the outcome of every session row."""
    with reader.open_copy(path, options) as database:
        return list(database.sessions())
