"""Corrupts the data of a server, like a failing disk."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

PAGE_BYTES = 4096


def overwrite_page_of_memories(database: Path) -> None:
    """Overwrite a page of the table that has a memory with the text `a memory to damage`."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = database.read_bytes()
    at = content.rindex(b"a memory to damage") // PAGE_BYTES * PAGE_BYTES
    with database.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * PAGE_BYTES)
        os.fsync(file.fileno())
