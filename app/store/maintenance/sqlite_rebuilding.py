"""Rebuilds full text while the server goes on.

A second table is filled slice by slice, kept up to date by its own triggers, and then swapped in for the first. So
nobody waits longer than one slice takes, and searches use the old index until the new one is complete.
"""

from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from app.store.database import Database
from app.store.maintenance.sqlite_faults import FULL_TEXT, differing_objects, installed_objects

_NEW: Final = f"{FULL_TEXT}_new"
_PROGRESS: Final = f"{FULL_TEXT}_refill"
_SHADOWS: Final = ("data", "idx", "docsize", "config")
_COLUMNS: Final = "project, title, subtitle, text, narrative, facts, concepts, search_text, neighbour_text"
_SLICE_ROWS: Final = 2_000
_FILLED: Final = f"old.seq <= (SELECT filled_to FROM {_PROGRESS})"


def rebuild(database: Database, progress: Callable[[int], None] = lambda _: None) -> int:
    """Repair triggers and views and index every memory again; return the number of memories.

    If interrupted, it starts over the next time; running it twice changes nothing.
    """
    with database.advisory_lock("rebuild"):
        with database.write() as connection:
            _clear_leftovers(connection)
            _repair_objects(connection)
            _create_second_table(connection)
        return _fill_all(database, progress)


def _fill_all(database: Database, progress: Callable[[int], None]) -> int:
    indexed = 0
    while True:
        with database.write() as connection:
            count = _fill_slice(connection)
            indexed += count
            if count < _SLICE_ROWS:
                _swap_in(connection)
                return indexed
        progress(indexed)


def _clear_leftovers(connection: Connection) -> None:
    for trigger in _own_triggers():
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {trigger}")
    _drop(connection, _NEW)
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {_PROGRESS}")


def _repair_objects(connection: Connection) -> None:
    """Reinstall triggers and views that are missing or altered, and drop those that are not ours."""
    expected = installed_objects()
    for name in differing_objects(connection):
        if name == FULL_TEXT:
            _drop(connection, FULL_TEXT)
            connection.exec_driver_sql(expected[FULL_TEXT])
            continue
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
        if name in expected:
            connection.exec_driver_sql(expected[name])


def _create_second_table(connection: Connection) -> None:
    """Create the second table with its triggers. Inserts need none: their keys come after what is filled."""
    connection.exec_driver_sql(f"CREATE TABLE {_PROGRESS} (filled_to INTEGER NOT NULL)")
    connection.exec_driver_sql(f"INSERT INTO {_PROGRESS} VALUES (0)")
    connection.exec_driver_sql(installed_objects()[FULL_TEXT].replace(FULL_TEXT, _NEW, 1))
    for statement in _own_triggers().values():
        connection.exec_driver_sql(statement)


def _own_triggers() -> dict[str, str]:
    """Return the triggers of the second table: the installed ones, restricted to what is filled already."""
    deleting, updating = (
        installed_objects()[f"trg_{FULL_TEXT}_{verb}"].replace(FULL_TEXT, _NEW) for verb in ("delete", "update")
    )
    return {
        f"trg_{_NEW}_delete": deleting.replace(" BEGIN ", f" WHEN {_FILLED} BEGIN ", 1),
        f"trg_{_NEW}_update": updating.replace(" WHEN ", f" WHEN {_FILLED} AND (", 1).replace(" BEGIN ", ") BEGIN ", 1),
    }


def _fill_slice(connection: Connection) -> int:
    filled_to = connection.exec_driver_sql(f"SELECT filled_to FROM {_PROGRESS}").scalar_one()
    last, count = connection.exec_driver_sql(
        "SELECT max(seq), count(*) FROM (SELECT seq FROM memory_items WHERE seq > ? ORDER BY seq LIMIT ?)",
        (filled_to, _SLICE_ROWS),
    ).one()
    if count:
        connection.exec_driver_sql(
            f"INSERT INTO {_NEW}(rowid, {_COLUMNS}) SELECT seq, {_COLUMNS} FROM {FULL_TEXT}_content"
            " WHERE seq > ? AND seq <= ? ORDER BY seq",
            (filled_to, last),
        )
        connection.exec_driver_sql(f"UPDATE {_PROGRESS} SET filled_to = ?", (last,))
    return int(count)


def _swap_in(connection: Connection) -> None:
    for trigger in _own_triggers():
        connection.exec_driver_sql(f"DROP TRIGGER {trigger}")
    _drop(connection, FULL_TEXT)
    # the installed triggers refer to the table that was just dropped: only the legacy rename permits that
    connection.exec_driver_sql("PRAGMA legacy_alter_table = ON")
    connection.exec_driver_sql(f"ALTER TABLE {_NEW} RENAME TO {FULL_TEXT}")
    connection.exec_driver_sql("PRAGMA legacy_alter_table = OFF")
    connection.exec_driver_sql(f"DROP TABLE {_PROGRESS}")
    # postings that were cached before the rebuild may come from a damaged index
    connection.exec_driver_sql("UPDATE project_statistics SET changes = changes + 1")


def _drop(connection: Connection, table: str) -> None:
    """Drop a full-text table, even if it is so damaged that SQLite cannot open it."""
    try:
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
    except DBAPIError:
        connection.exec_driver_sql("PRAGMA writable_schema = ON")
        connection.exec_driver_sql("DELETE FROM sqlite_master WHERE name = ?", (table,))
        connection.exec_driver_sql("PRAGMA writable_schema = RESET")
    for shadow in _SHADOWS:
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}_{shadow}")
