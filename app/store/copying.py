"""A copy of one moment of an SQLite database that others write to, and whether a file is a whole database."""

import os
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Final

_PAGES_AT_ONCE: Final = 4_096
_SHOWN: Final = 20

Progress = Callable[[int, int], None]
"""Told how many pages are done, of how many."""


def copy(source: Path, target: Path, progress: Progress) -> dict[str, int]:
    """Copy `source` as it is now into the new file `target`, readable by its owner only; return its rows by table.

    Writers go on: SQLite's backup API reads one snapshot, and the copy needs no -wal beside it.
    """
    target.unlink(missing_ok=True)
    os.close(os.open(target, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    with closing(_opened(source)) as origin, closing(sqlite3.connect(target, isolation_level=None)) as made:
        origin.execute("BEGIN")
        rows = row_counts(origin)  # the first read fixes the snapshot, and the backup stays inside it
        origin.backup(made, pages=_PAGES_AT_ONCE, progress=lambda _, left, total: progress(total - left, total))
        made.execute("PRAGMA journal_mode = DELETE")
    sync(target)
    return rows


def faults(path: Path) -> list[str]:
    """Return what is wrong with a database file: pages, foreign keys, full text. Nothing in it is changed."""
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            return _faults(connection)
    except sqlite3.DatabaseError as failure:
        return [f"not a readable database: {failure}"]


def row_counts(connection: sqlite3.Connection) -> dict[str, int]:
    """Return how many rows each table of ours has; the shadow tables of full text are left out."""
    tables = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        " AND name NOT LIKE 'memory\\_items\\_fts%' ESCAPE '\\' ORDER BY name"
    ).fetchall()
    return {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for (name,) in tables}  # noqa: S608


def rows_of(path: Path) -> dict[str, int]:
    """Return how many rows each table of a file has."""
    with closing(sqlite3.connect(path)) as connection:
        return row_counts(connection)


def sync(path: Path) -> None:
    """Bring a file or folder to the disk."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def _faults(connection: sqlite3.Connection) -> list[str]:
    pages = [text for (text,) in connection.execute(f"PRAGMA integrity_check({_SHOWN})") if text != "ok"]
    orphans = connection.execute("PRAGMA foreign_key_check").fetchmany(_SHOWN)
    found = [f"damaged page: {page}" for page in pages]
    found += [f"{table} row {row} has lost its parent in {parent}" for table, row, parent, _ in orphans]
    connection.execute("BEGIN")
    try:
        connection.execute("INSERT INTO memory_items_fts(memory_items_fts, rank) VALUES ('integrity-check', 1)")
    except sqlite3.DatabaseError as failure:
        found.append(f"full text differs from the memories: {failure}")
    finally:
        connection.execute("ROLLBACK")
    return found
