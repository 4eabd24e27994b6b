"""SQLite: its backup API reads one moment of the file; another file takes its place by being renamed."""

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Final

from app.store.backup import Address, BackupError, Content, Progress, Rows, files
from app.store.database import path_of
from app.store.schema import migrations

_PAGES_AT_ONCE: Final = 4_096
_SHOWN: Final = 20


def copy(url: str, target: Path, progress: Progress) -> Rows:
    """Copy the file as it is now into `target`; return its rows by table.

    Writers go on: SQLite's backup API reads one snapshot, and the copy needs no -wal beside it.
    """
    source = path_of(url)
    if not source.exists():
        raise BackupError(f"There is no database at {source}.")
    with files.private(target):
        pass
    with closing(_opened(source)) as origin, closing(sqlite3.connect(target, isolation_level=None)) as made:
        origin.execute("BEGIN")
        rows = _row_counts(origin)  # the first read fixes the snapshot, and the backup stays inside it
        origin.backup(made, pages=_PAGES_AT_ONCE, progress=lambda _, left, total: progress(total - left, total))
        made.execute("PRAGMA journal_mode = DELETE")
    files.sync(target)
    return rows


def content(backup: Path) -> Content:
    """Check pages, foreign keys and full text of a file; nothing in it is changed."""
    _require_whole(backup)
    with closing(sqlite3.connect(backup)) as connection:
        return Content(_row_counts(connection), migrations.current(f"sqlite:///{backup.absolute()}"))


def brought(backup: Path, url: str) -> Path:
    """Copy a backup beside the database: what is checked there cannot change any more."""
    path = path_of(url)
    incoming = path.with_name(path.name + ".restoring")
    files.copy(backup, incoming)
    return incoming


def replace(incoming: Path, address: Address, expected: Rows, in_place: Callable[[], None]) -> None:
    """Rename it into the place of the old file, which stays beside it until the new one has passed its checks."""
    del expected  # the very file was checked
    path = path_of(address.url)
    with _old_aside(path):
        _remove_sidecars(path)
        incoming.replace(path)
        files.sync(path.parent)
        in_place()
        migrations.upgrade(address.url)
        _require_whole(path)


@contextmanager
def _old_aside(database: Path) -> Iterator[None]:
    """Keep what stands under another name, put it back when the new one fails, remove it when all is well."""
    old = database.with_name(database.name + ".before-restore")
    if database.exists() and not old.exists():  # there is one: an interrupted run kept the original
        _fold_log_in(database)
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


def _fold_log_in(database: Path) -> None:
    """Bring what only the log holds into the file. One that is too damaged for that is replaced as it is."""
    with contextlib.suppress(sqlite3.DatabaseError):
        connection = sqlite3.connect(database, isolation_level=None)
        try:
            connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            connection.close()


def _remove_sidecars(database: Path) -> None:
    """Remove the log and its index: beside another database they would be replayed into it."""
    for suffix in ("-wal", "-shm", "-journal"):
        database.with_name(database.name + suffix).unlink(missing_ok=True)


def _row_counts(connection: sqlite3.Connection) -> Rows:
    """Return how many rows each table of ours has; the shadow tables of full text are left out."""
    tables = connection.execute(
        "SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite\\_%' ESCAPE '\\'"
        " AND name NOT LIKE 'memory\\_items\\_fts%' ESCAPE '\\' ORDER BY name"
    ).fetchall()
    return {name: connection.execute(f'SELECT count(*) FROM "{name}"').fetchone()[0] for (name,) in tables}  # noqa: S608


def _opened(path: Path) -> sqlite3.Connection:
    return sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True, isolation_level=None)


def _require_whole(path: Path) -> None:
    try:
        with closing(sqlite3.connect(path, isolation_level=None)) as connection:
            found = _faults(connection)
    except sqlite3.DatabaseError as failure:
        found = [f"not a readable database: {failure}"]
    if found:
        raise BackupError(f"{path.name} is not whole: {found[0]}")


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
