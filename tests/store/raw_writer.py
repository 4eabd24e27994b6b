"""Rows as any program with the database file could write them: plain sqlite3, foreign keys off."""

import itertools
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

_STANDARD: dict[str, dict[str, Any]] = {
    "teams": {"name": "t", "metadata": "{}", "created_at_epoch": 1, "updated_at_epoch": 1},
    "team_members": {"role": "member", "created_at_epoch": 1, "updated_at_epoch": 1},
    "projects": {"name": "p", "metadata": "{}", "retention": "[]", "created_at_epoch": 1, "updated_at_epoch": 1},
    "server_sessions": {
        "platform_source": "claude",
        "metadata": "{}",
        "started_at_epoch": 1,
        "created_at_epoch": 1,
        "updated_at_epoch": 1,
    },
    "agent_events": {
        "platform_source": "claude",
        "source_type": "hook",
        "event_type": "x",
        "payload": "{}",
        "metadata": "{}",
        "occurred_at_epoch": 1,
        "created_at_epoch": 1,
    },
    "memory_items": {
        "dedup_scope": "",
        "version": 1,
        "kind": "manual",
        "type": "manual",
        "facts": "[]",
        "concepts": "[]",
        "files_read": "[]",
        "files_modified": "[]",
        "metadata": "{}",
        "platform_source": "claude",
        "created_at_epoch": 1,
        "updated_at_epoch": 1,
    },
    "memory_sources": {
        "source_type": "import",
        "origin": "o",
        "legacy_table": "observations",
        "metadata": "{}",
        "created_at_epoch": 1,
    },
    "api_keys": {"secret_hash": "x", "scopes": "[]", "created_at_epoch": 1, "updated_at_epoch": 1},
    "audit_log": {
        "action": "memory.create",
        "target_type": "memory",
        "outcome": "done",
        "count": 1,
        "created_at_epoch": 1,
    },
}
_UNIQUE = {
    "teams": ("slug",),
    "projects": ("slug",),
    "agent_events": ("event_hash",),
    "memory_items": ("content_hash",),
    "memory_sources": ("legacy_id",),
    "api_keys": ("public_id",),
}


class RawWriter:
    """A connection of the plain driver, as a sqlite3 shell has it: foreign keys off, no rules but the database's."""

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=10)
        self._numbers = itertools.count(1)

    def insert(self, table: str, *, verb: str = "INSERT", **values: Any) -> str:
        """Write a row, with standard values for what the test does not care about; return its id."""
        fresh = {name: f"{table}-{next(self._numbers)}" for name in ("id", *_UNIQUE.get(table, ()))}
        if table == "team_members":
            fresh = {}
        row = {**_STANDARD[table], **fresh, **values}
        places = ", ".join("?" for _ in row)
        self.run(f"{verb} INTO {table} ({', '.join(row)}) VALUES ({places})", *row.values())
        return str(row.get("id", ""))

    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        with closing(self.connection.execute(sql, values)) as cursor:
            return cursor.fetchall()

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()
