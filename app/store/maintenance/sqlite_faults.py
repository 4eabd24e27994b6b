"""Finds whatever triggers and full text no longer keep correct, by content and not by counts.

What should exist is not written down twice: the migrations are run on an empty database, which is compared with.
"""

import sqlite3
import tempfile
from contextlib import closing
from functools import cache
from pathlib import Path
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from app.store.database import Database
from app.store.maintenance import REBUILD
from app.store.schema import migrations

FULL_TEXT: Final = "memory_items_fts"
_MAX_SHOWN: Final = 20
_FILES: Final = {"database": "", "wal": "-wal"}
_FIRST_WORDS: Final = 100


def faults(database: Database) -> list[str]:
    """Return every fault, with its remedy: pages, foreign keys, triggers and views, full text."""
    with database.read() as connection:
        pages = connection.exec_driver_sql(f"PRAGMA integrity_check({_MAX_SHOWN})").scalars().all()
        damaged = [page for page in pages if page != "ok"]
        orphaned = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
        differing = differing_objects(connection)
    result = [f"damaged page: {page}; restore the newest backup" for page in damaged]
    result += [f"{table} row {row} has lost its parent in {parent}" for table, row, parent, _ in orphaned[:_MAX_SHOWN]]
    result += [f"{name} is not what the migrations installed: {REBUILD}" for name in differing]
    if not damaged and not is_full_text_intact(database):
        result.append(f"full text differs from the memories: {REBUILD}")
    return result


def damaged_pages(connection: Connection, *, limit: int) -> list[str]:
    """Return the damage that SQLite finds by reading every page."""
    return [row[0] for row in connection.exec_driver_sql(f"PRAGMA quick_check({limit})") if row[0] != "ok"]


def orphans(connection: Connection) -> list[tuple[str, str]]:
    """Return rows without their parent."""
    rows = connection.exec_driver_sql("PRAGMA foreign_key_check")
    return [(table, f"row {row} has lost its parent in {parent}") for table, row, parent, _ in rows]


def free_and_total(connection: Connection) -> tuple[int, int]:
    """Return the number of free pages, and of all."""
    free, pages = (
        connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("freelist_count", "page_count")
    )
    return free, pages


def sizes(database: Database) -> dict[str, int]:
    """Return the sizes of the file and of its log, in bytes."""
    files = {name: database.path.with_name(database.path.name + suffix) for name, suffix in _FILES.items()}
    return {name: path.stat().st_size if path.exists() else 0 for name, path in files.items()}


def is_full_text_intact(database: Database) -> bool:
    """Compare the index with every memory, by FTS5's own check, which holds the write lock."""
    with database.write() as connection:
        try:
            connection.exec_driver_sql(f"INSERT INTO {FULL_TEXT}({FULL_TEXT}, rank) VALUES ('integrity-check', 1)")
        except DBAPIError:  # this is how FTS5 reports a difference
            return False
    return True


def is_full_text_plausible(connection: Connection) -> bool:
    """Check full text cheaply: its objects are as installed, and as many memories are indexed as exist."""
    if differing_objects(connection):
        return False
    count = f"SELECT (SELECT count(*) FROM {FULL_TEXT}_docsize), (SELECT count(*) FROM memory_items)"
    try:
        connection.exec_driver_sql(f"SELECT rowid FROM {FULL_TEXT} WHERE {FULL_TEXT} MATCH 'project' LIMIT 1")
        indexed, existing = connection.exec_driver_sql(count).one()
    except DBAPIError:  # a shadow table is missing or unreadable
        return False
    return bool(indexed == existing)


def next_memory_differs(connection: Connection, seq: int) -> tuple[bool, int]:
    """Search for the words of the first memory after `seq`; return whether any is missing, and its own `seq`.

    It takes no lock. The first words of each field suffice, because an entry is written whole or not at all.
    """
    texts = f"SELECT * FROM {FULL_TEXT}_content WHERE seq > ? ORDER BY seq LIMIT 1"
    row = connection.exec_driver_sql(texts, (seq,)).mappings().first()
    if row is None:
        return False, seq
    own = " ".join(f"{name} : {_phrase(text)}" for name, text in row.items() if name != "seq" and text)
    return not _is_found(connection, row["seq"], own), row["seq"]


def _is_found(connection: Connection, seq: int, phrases: str) -> bool:
    query = f"SELECT 1 FROM {FULL_TEXT} WHERE rowid = ? AND {FULL_TEXT} MATCH ?"
    try:
        return connection.exec_driver_sql(query, (seq, phrases)).first() is not None
    except DBAPIError:  # the index cannot be read
        return False


def _phrase(text: str) -> str:
    words = " ".join(text.split(maxsplit=_FIRST_WORDS)[:_FIRST_WORDS])
    return '"' + words.replace('"', '""').replace("\0", " ") + '"'


def differing_objects(connection: Connection) -> list[str]:
    """Return the names of triggers, views and virtual tables that are missing, altered, or not ours."""
    existing = _objects(connection.connection.driver_connection)
    expected = installed_objects()
    return sorted(name for name in existing.keys() | expected.keys() if existing.get(name) != expected.get(name))


@cache
def installed_objects() -> dict[str, str]:
    """Return what the migrations install in addition to tables and indexes: {name: SQL}."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reference.db"
        migrations.upgrade(f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as reference:
            return _objects(reference)


def _objects(connection: sqlite3.Connection | None) -> dict[str, str]:
    assert connection is not None  # noqa: S101 - a checked-out connection has a driver connection
    rows = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type IN ('trigger', 'view') OR sql LIKE 'CREATE VIRTUAL TABLE%'"
    )
    return {name: " ".join(sql.replace('"', "").split()) for name, sql in rows}  # renaming a table quotes its name
