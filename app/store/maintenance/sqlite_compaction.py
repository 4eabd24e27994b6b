"""Keeps the file small and deleted text off the disk: merges full text, releases free pages, checkpoints the log.

Each step is short, and writers get their turn in between.
"""

import sqlite3
import time
from contextlib import closing
from typing import Final

from app.store.database import Database
from app.store.engines.sqlite import configure
from app.store.maintenance import StopCheck
from app.store.maintenance.sqlite_faults import FULL_TEXT

_MERGE_PAGES: Final = 500
_MERGE: Final = f"INSERT INTO {FULL_TEXT}({FULL_TEXT}, rank) VALUES ('merge', ?)"
_RELEASE_PAGES: Final = 2_000
_CHECKPOINT_TRIES: Final = 50
_CHECKPOINT_PAUSE_SECONDS: Final = 0.1


def merge_full_text(database: Database, check_stop: StopCheck = lambda: None) -> None:
    """Merge the index into one segment: until then, words of deleted memories remain in older ones (FTS5, 6.8)."""
    pages = -_MERGE_PAGES  # a negative number on the first call makes FTS5 start with all segments
    while True:
        check_stop()
        with database.write() as connection:
            before = connection.exec_driver_sql("SELECT total_changes()").scalar_one()
            connection.exec_driver_sql(_MERGE, (pages,))
            after = connection.exec_driver_sql("SELECT total_changes()").scalar_one()
        if after - before < 2:  # the command itself counts as one
            return
        pages = _MERGE_PAGES


def release_free_pages(database: Database, check_stop: StopCheck = lambda: None) -> int:
    """Shrink the file by its free pages; return how many were released."""
    with closing(_connect(database)) as connection:
        initial = before = _free_pages(connection)
        while before:
            check_stop()
            with database.exclusive():
                connection.execute(f"PRAGMA incremental_vacuum({_RELEASE_PAGES})").fetchall()
            left = _free_pages(connection)
            if left >= before:  # the file was created without incremental vacuum
                break
            before = left
        return initial - before


def refresh_statistics(database: Database) -> None:
    """Update the query planner's statistics where that is worthwhile."""
    with closing(_connect(database)) as connection, database.exclusive():
        connection.execute("PRAGMA optimize")


def checkpoint_log(database: Database) -> bool:
    """Write the log into the database and empty it; False when readers prevented it for five seconds."""
    with closing(_connect(database)) as connection:
        for _ in range(_CHECKPOINT_TRIES):
            with database.exclusive():
                busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:
                return True
            time.sleep(_CHECKPOINT_PAUSE_SECONDS)
    return False


def _connect(database: Database) -> sqlite3.Connection:
    connection = sqlite3.connect(database.path, isolation_level=None)
    configure(connection)
    connection.execute("PRAGMA busy_timeout = 100")  # wait for readers between the steps, not while writers wait
    return connection


def _free_pages(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA freelist_count").fetchone()[0])
