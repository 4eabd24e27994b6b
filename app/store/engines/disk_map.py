"""A map of strings that spills to disk: memory stays constant, however many entries it has."""

import sqlite3


class DiskMap:
    """A temporary map from string to string, deleted on close. For one thread at a time."""

    def __init__(self) -> None:
        """Start empty; SQLite creates the file once its page cache is full."""
        self._connection = sqlite3.connect("", check_same_thread=False, isolation_level=None)
        self._connection.execute("CREATE TABLE entries (key TEXT PRIMARY KEY, value TEXT) WITHOUT ROWID")
        self._connection.execute("BEGIN")

    def set(self, key: str, value: str) -> None:
        """Add or replace an entry."""
        self._connection.execute("INSERT OR REPLACE INTO entries VALUES (?, ?)", (key, value))

    def get(self, key: str, default: str) -> str:
        """Return the value of a key, or the default."""
        row = self._connection.execute("SELECT value FROM entries WHERE key = ?", (key,)).fetchone()
        return str(row[0]) if row else default

    def close(self) -> None:
        """Delete the map."""
        self._connection.close()
