"""SQLite: its backup API reads one snapshot of the file; a rename swaps another file in."""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from app.store.backup import BackupContent, BackupError, Progress, RestoreTarget, Rows, files
from app.store.database import path_of
from app.store.schema import migrations

_PAGES_PER_STEP: Final = 4_096
_MAX_SHOWN: Final = 20


def copy(url: str, target: Path, progress: Progress) -> Rows:
    """Copy a snapshot of the file to `target`; return its rows by table.

    Writers go on, because SQLite's backup API reads one snapshot. The copy needs no -wal file next to it.
    """
    source = path_of(url)
    if not source.exists():
        raise BackupError(f"There is no database at {source}.")
    with files.create_private(target):
        pass
    with closing(_open_read_only(source)) as origin, closing(sqlite3.connect(target, isolation_level=None)) as made:
        origin.execute("BEGIN")
        rows = _row_counts(origin)  # the first read fixes the snapshot, and the backup stays inside it
        origin.backup(made, pages=_PAGES_PER_STEP, progress=lambda _, left, total: progress(total - left, total))
        made.execute("PRAGMA journal_mode = DELETE")
    files.fsync(target)
    return rows


def verify(backup: Path) -> BackupContent:
    """Check pages, foreign keys and full text of a file, without changing it."""
    _require_intact(backup)
    with closing(sqlite3.connect(backup)) as connection:
        return BackupContent(_row_counts(connection), migrations.current(f"sqlite:///{backup.absolute()}"))


def stage(backup: Path, url: str) -> Path:
    """Copy a backup next to the database, so that nobody can change it after it was checked."""
    path = path_of(url)
    incoming = path.with_name(path.name + ".restoring")
    files.copy_private(backup, incoming)
    return incoming


def swap(incoming: Path, target: RestoreTarget, expected: Rows, on_swapped: Callable[[], None]) -> None:
    """Rename it to the old file's name; the old file is kept until the new one has passed its checks."""
    del expected  # this very file was checked
    path = path_of(target.url)
    with _keep_old(path):
        _remove_sidecars(path)
        incoming.replace(path)
        files.fsync(path.parent)
        on_swapped()
        migrations.upgrade(target.url)
        _require_intact(path)


@contextmanager
def _keep_old(database: Path) -> Iterator[None]:
    """Keep the old file under another name: put it back when the block fails, and remove it when it succeeds."""
    old = database.with_name(database.name + ".before-restore")
    if database.exists() and not old.exists():  # if it exists, an interrupted restore has kept the original
        _checkpoint_log(database)
        os.link(database, old)
    try:
        yield
    except Exception:
        if old.exists() and not old.samefile(database):
            _remove_sidecars(database)
            old.replace(database)
        old.unlink(missing_ok=True)
        raise
    old.unlink(missing_ok=True)


def _checkpoint_log(database: Path) -> None:
    """Write what only the log holds into the file. A file too damaged for that is replaced as it is."""
    with contextlib.suppress(sqlite3.DatabaseError):
        connection = sqlite3.connect(database, isolation_level=None)
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()


def _remove_sidecars(database: Path) -> None:
    """Remove the log and its index, which SQLite would otherwise replay into the new database."""
    for suffix in ("-wal", "-shm", "-journal"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)


def _row_counts(connection: sqlite3.Connection) -> Rows:
    """Return the number of rows of each of our tables, except the shadow tables of full text."""
    tables = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        " AND name NOT LIKE 'memory\\_items\\_fts%' ESCAPE '\\' ORDER BY name"
    ).fetchall()
    return {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for (name,) in tables}  # noqa: S608


def _open_read_only(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def _require_intact(path: Path) -> None:
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            faults = _find_faults(connection)
    except sqlite3.DatabaseError as failure:
        faults = [f"not a readable database: {failure}"]
    if faults:
        raise BackupError(f"{path.name} is damaged: {faults[0]}")


def _find_faults(connection: sqlite3.Connection) -> list[str]:
    pages = [text for (text,) in connection.execute(f"PRAGMA integrity_check({_MAX_SHOWN})") if text != "ok"]
    orphans = connection.execute("PRAGMA foreign_key_check").fetchmany(_MAX_SHOWN)
    faults = [f"damaged page: {page}" for page in pages]
    faults += [f"{table} row {row} has lost its parent in {parent}" for table, row, parent, _ in orphans]
    connection.execute("BEGIN")
    try:
        connection.execute("INSERT INTO memory_items_fts(memory_items_fts, rank) VALUES ('integrity-check', 1)")
    except sqlite3.DatabaseError as failure:
        faults.append(f"full text differs from the memories: {failure}")
    finally:
        connection.execute("ROLLBACK")
    return faults
