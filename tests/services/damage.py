"""Ways in which a server's data are damaged outside, and memories to damage."""

import os
import sqlite3
from contextlib import closing
from pathlib import Path

PAGE_BYTES = 4096


def a_page_of_memories(database: Path) -> None:
    """Overwrite a page that holds rows, as a failing disk does."""
    with closing(sqlite3.connect(database)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = database.read_bytes()
    at = content.rindex(b"a memory to damage") // PAGE_BYTES * PAGE_BYTES
    with database.open("r+b") as file:
        file.seek(at)
        file.write(b"\xff" * PAGE_BYTES)
        os.fsync(file.fileno())
