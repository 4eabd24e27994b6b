"""Rebuilds full text while the server goes on.

A second table is filled slice by slice and kept in step by triggers of its own, then takes the first one's place. So
nobody waits for longer than one slice takes, and searches find what they found before until the new one is whole.
"""

from collections.abc import Callable
from typing import Final

from sqlalchemy import Connection
from sqlalchemy.exc import DBAPIError

from app.store.database import Database
from app.store.maintenance.sqlite_faults import FULL_TEXT, differing_objects, installed_objects

_NEW: Final = f"{FULL_TEXT}_new"
_PLACE: Final = f"{FULL_TEXT}_refill"
_SHADOWS: Final = ("data", "idx", "docsize", "config")
_COLUMNS: Final = "project, title, subtitle, text, narrative, facts, concepts, search_text, neighbour_text"
_SLICE_ROWS: Final = 2_000
_FILLED: Final = f"old.seq <= (SELECT filled_to FROM {_PLACE})"


def rebuild(database: Database, progress: Callable[[int], None] = lambda _: None) -> int:
    """Index every memory anew and mend triggers and views; return how many memories were indexed.

    Interrupted, it begins again the next time; run twice, it changes nothing.
    """
    with database.alone("rebuild"):
        with database.write() as connection:
            _clear_leftovers(connection)
            _mend_objects(connection)
            _begin(connection)
        return _fill(database, progress)


def _fill(database: Database, progress: Callable[[int], None]) -> int:
    indexed = 0
    while True:
        with database.write() as connection:
            count = _fill_slice(connection)
            indexed += count
            if count < _SLICE_ROWS:
                _take_place(connection)
                return indexed
        progress(indexed)


def _clear_leftovers(connection: Connection) -> None:
    for trigger in _own_triggers():
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {trigger}")
    _drop(connection, _NEW)
    connection.exec_driver_sql(f"DROP TABLE IF EXISTS {_PLACE}")


def _mend_objects(connection: Connection) -> None:
    """Put back triggers and views that are absent or altered, and remove those that are not of ours."""
    wanted = installed_objects()
    for name in differing_objects(connection):
        if name == FULL_TEXT:
            _drop(connection, FULL_TEXT)
            connection.exec_driver_sql(wanted[FULL_TEXT])
            continue
        connection.exec_driver_sql(f"DROP TRIGGER IF EXISTS {name}")
        connection.exec_driver_sql(f"DROP VIEW IF EXISTS {name}")
        if name in wanted:
            connection.exec_driver_sql(wanted[name])


def _begin(connection: Connection) -> None:
    """Make the second table with its triggers; insertions need none, their keys lie beyond what is filled."""
    connection.exec_driver_sql(f"CREATE TABLE {_PLACE} (filled_to INTEGER NOT NULL)")
    connection.exec_driver_sql(f"INSERT INTO {_PLACE} VALUES (0)")
    connection.exec_driver_sql(installed_objects()[FULL_TEXT].replace(FULL_TEXT, _NEW, 1))
    for statement in _own_triggers().values():
        connection.exec_driver_sql(statement)


def _own_triggers() -> dict[str, str]:
    """Return the standing triggers' twins for the second table: they act on what is filled already."""
    deleting, updating = (
        installed_objects()[f"trg_{FULL_TEXT}_{verb}"].replace(FULL_TEXT, _NEW) for verb in ("delete", "update")
    )
    return {
        f"trg_{_NEW}_delete": deleting.replace(" BEGIN ", f" WHEN {_FILLED} BEGIN ", 1),
        f"trg_{_NEW}_update": updating.replace(" WHEN ", f" WHEN {_FILLED} AND (", 1).replace(" BEGIN ", ") BEGIN ", 1),
    }


def _fill_slice(connection: Connection) -> int:
    place = connection.exec_driver_sql(f"SELECT filled_to FROM {_PLACE}").scalar_one()
    last, count = connection.exec_driver_sql(
        "SELECT max(seq), count(*) FROM (SELECT seq FROM memory_items WHERE seq > ? ORDER BY seq LIMIT ?)",
        (place, _SLICE_ROWS),
    ).one()
    if count:
        connection.exec_driver_sql(
            f"INSERT INTO {_NEW}(rowid, {_COLUMNS}) SELECT seq, {_COLUMNS} FROM {FULL_TEXT}_content"
            " WHERE seq > ? AND seq <= ? ORDER BY seq",
            (place, last),
        )
        connection.exec_driver_sql(f"UPDATE {_PLACE} SET filled_to = ?", (last,))
    return int(count)


def _take_place(connection: Connection) -> None:
    for trigger in _own_triggers():
        connection.exec_driver_sql(f"DROP TRIGGER {trigger}")
    _drop(connection, FULL_TEXT)
    # the standing triggers name the table that is gone for a moment: only the legacy rename lets that be
    connection.exec_driver_sql("PRAGMA legacy_alter_table = ON")
    connection.exec_driver_sql(f"ALTER TABLE {_NEW} RENAME TO {FULL_TEXT}")
    connection.exec_driver_sql("PRAGMA legacy_alter_table = OFF")
    connection.exec_driver_sql(f"DROP TABLE {_PLACE}")
    # what was remembered of the index before the rebuild may be of a damaged one
    connection.exec_driver_sql("UPDATE project_statistics SET changes = changes + 1")


def _drop(connection: Connection, table: str) -> None:
    """Drop a full-text table, also one that is so damaged that SQLite cannot open it."""
    try:
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}")
    except DBAPIError:
        connection.exec_driver_sql("PRAGMA writable_schema = ON")
        connection.exec_driver_sql("DELETE FROM sqlite_master WHERE name = ?", (table,))
        connection.exec_driver_sql("PRAGMA writable_schema = RESET")
    for shadow in _SHADOWS:
        connection.exec_driver_sql(f"DROP TABLE IF EXISTS {table}_{shadow}")
