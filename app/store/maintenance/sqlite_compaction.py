"""What keeps a database small, and deleted text off the disk: merging full text, giving pages back, folding the log in.

Each step is short: writers get their turn in between.
"""

import sqlite3
import time
from contextlib import closing
from typing import Final

from app.store.database import Database
from app.store.engines.sqlite import configure
from app.store.maintenance import GoOn
from app.store.maintenance.sqlite_faults import FULL_TEXT

_MERGED_PAGES: Final = 500
_MERGE: Final = f"INSERT INTO {FULL_TEXT}({FULL_TEXT}, rank) VALUES ('merge', ?)"
_FREED_PAGES: Final = 2_000
_CHECKPOINT_TRIES: Final = 50
_CHECKPOINT_PAUSE_SECONDS: Final = 0.1


def merge_full_text(database: Database, go_on: GoOn = lambda: None) -> None:
    """Merge the index into one piece: until then the words of deleted memories stay in older ones (FTS5, 6.8)."""
    pages = -_MERGED_PAGES  # the first call, a negative one, begins with all pieces
    while True:
        go_on()
        with database.write() as connection:
            before = connection.exec_driver_sql("SELECT total_changes()").scalar_one()
            connection.exec_driver_sql(_MERGE, (pages,))
            after = connection.exec_driver_sql("SELECT total_changes()").scalar_one()
        if after - before < 2:  # the command itself counts as one
            return
        pages = _MERGED_PAGES


def give_pages_back(database: Database, go_on: GoOn = lambda: None) -> int:
    """Shrink the file by the pages that are free; return how many."""
    with closing(_opened(database)) as connection:
        freed = before = _free_pages(connection)
        while before:
            go_on()
            with database.exclusive():
                connection.execute(f"PRAGMA incremental_vacuum({_FREED_PAGES})").fetchall()
            left = _free_pages(connection)
            if left >= before:  # the file was made without room for that
                break
            before = left
        return freed - before


def refresh_statistics(database: Database) -> None:
    """Let the query planner look again where that is worthwhile."""
    with closing(_opened(database)) as connection, database.exclusive():
        connection.execute("PRAGMA optimize")


def fold_log_in(database: Database) -> bool:
    """Write the log into the database and empty it; False when readers held it for seconds."""
    with closing(_opened(database)) as connection:
        for _ in range(_CHECKPOINT_TRIES):
            with database.exclusive():
                busy, *_ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
            if not busy:
                return True
            time.sleep(_CHECKPOINT_PAUSE_SECONDS)
    return False


def _opened(database: Database) -> sqlite3.Connection:
    connection = sqlite3.connect(database.path, isolation_level=None)
    configure(connection)
    connection.execute("PRAGMA busy_timeout = 100")  # readers are waited for between the turns, not within
    return connection


def _free_pages(connection: sqlite3.Connection) -> int:
    return int(connection.execute("PRAGMA freelist_count").fetchone()[0])
