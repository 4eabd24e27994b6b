"""Finds drift of everything that triggers and full text keep, by content and not by counts.

What should be there is not written down twice: the migrations are run on an empty database and compared with.
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
_SHOWN: Final = 20
_FILES: Final = {"database": "", "wal": "-wal"}
_FIRST_WORDS: Final = 100


def faults(database: Database) -> list[str]:
    """Return every fault, each with what mends it: pages, foreign keys, triggers and views, full text."""
    with database.read() as connection:
        pages = [row[0] for row in connection.exec_driver_sql(f"PRAGMA integrity_check({_SHOWN})") if row[0] != "ok"]
        lost = connection.exec_driver_sql("PRAGMA foreign_key_check").fetchall()
        differing = differing_objects(connection)
    found = [f"damaged page: {page}; restore the newest backup" for page in pages]
    found += [f"{table} row {row} has lost its parent in {parent}" for table, row, parent, _ in lost[:_SHOWN]]
    found += [f"{name} is not what the migrations installed: {REBUILD}" for name in differing]
    if not pages and not is_full_text_whole(database):
        found.append(f"full text differs from the memories: {REBUILD}")
    return found


def damaged_pages(connection: Connection, *, limit: int) -> list[str]:
    """Return what SQLite finds when it reads every page."""
    return [row[0] for row in connection.exec_driver_sql(f"PRAGMA quick_check({limit})") if row[0] != "ok"]


def orphans(connection: Connection) -> list[tuple[str, str]]:
    """Return rows without their parent."""
    found = connection.exec_driver_sql("PRAGMA foreign_key_check")
    return [(table, f"row {row} has lost its parent in {parent}") for table, row, parent, _ in found]


def free_share(connection: Connection) -> tuple[int, int]:
    """Return how many pages are free, and how many there are."""
    free, pages = (
        connection.exec_driver_sql(f"PRAGMA {name}").scalar_one() for name in ("freelist_count", "page_count")
    )
    return free, pages


def sizes(database: Database) -> dict[str, int]:
    """Return the sizes of the file and of its log."""
    files = {name: database.path.with_name(database.path.name + suffix) for name, suffix in _FILES.items()}
    return {name: path.stat().st_size if path.exists() else 0 for name, path in files.items()}


def is_full_text_whole(database: Database) -> bool:
    """Compare the index with every memory, by FTS5's own check; holds the write lock meanwhile."""
    with database.write() as connection:
        try:
            connection.exec_driver_sql(f"INSERT INTO {FULL_TEXT}({FULL_TEXT}, rank) VALUES ('integrity-check', 1)")
        except DBAPIError:  # that is how FTS5 says no
            return False
    return True


def is_full_text_in_step(connection: Connection) -> bool:
    """Say cheaply whether full text looks right: what was installed is there, and as many rows indexed as kept."""
    if differing_objects(connection):
        return False
    count = f"SELECT (SELECT count(*) FROM {FULL_TEXT}_docsize), (SELECT count(*) FROM memory_items)"
    try:
        connection.exec_driver_sql(f"SELECT rowid FROM {FULL_TEXT} WHERE {FULL_TEXT} MATCH 'project' LIMIT 1")
        indexed, kept = connection.exec_driver_sql(count).one()
    except DBAPIError:  # a shadow table is gone or unreadable
        return False
    return bool(indexed == kept)


def differs_behind(connection: Connection, seq: int) -> tuple[bool, int]:
    """Look the words of the next memory up where they should be found; return whether any is missing, and its `seq`.

    It takes no lock. The first words of each field stand for all: an entry is written whole or not at all.
    """
    texts = f"SELECT * FROM {FULL_TEXT}_content WHERE seq > ? ORDER BY seq LIMIT 1"
    row = connection.exec_driver_sql(texts, (seq,)).mappings().first()
    if row is None:
        return False, seq
    own = " ".join(f"{name} : {_phrase(text)}" for name, text in row.items() if name != "seq" and text)
    return not _is_found(connection, row["seq"], own), row["seq"]


def _is_found(connection: Connection, seq: int, phrases: str) -> bool:
    found = f"SELECT 1 FROM {FULL_TEXT} WHERE rowid = ? AND {FULL_TEXT} MATCH ?"
    try:
        return connection.exec_driver_sql(found, (seq, phrases)).first() is not None
    except DBAPIError:  # the index cannot be read
        return False


def _phrase(text: str) -> str:
    words = " ".join(text.split(maxsplit=_FIRST_WORDS)[:_FIRST_WORDS])
    return '"' + words.replace('"', '""').replace("\0", " ") + '"'


def differing_objects(connection: Connection) -> list[str]:
    """Return the names of triggers, views and virtual tables that are absent, altered, or not of ours."""
    standing = _objects(connection.connection.driver_connection)
    wanted = installed_objects()
    return sorted(name for name in standing.keys() | wanted.keys() if standing.get(name) != wanted.get(name))


@cache
def installed_objects() -> dict[str, str]:
    """Return what the migrations install beside tables and indexes: {name: SQL}."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "reference.db"
        migrations.upgrade(f"sqlite:///{path}")
        with closing(sqlite3.connect(path)) as reference:
            return _objects(reference)


def _objects(connection: sqlite3.Connection | None) -> dict[str, str]:
    assert connection is not None  # noqa: S101 - a connection that is checked out has its driver's
    found = connection.execute(
        "SELECT name, sql FROM sqlite_master WHERE type IN ('trigger', 'view') OR sql LIKE 'CREATE VIRTUAL TABLE%'"
    )
    return {name: " ".join(sql.replace('"', "").split()) for name, sql in found}  # a renamed table's name gets quotes
