"""Writes rows through the plain driver, as any other program could, past all rules but the database's own."""

import itertools
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import psycopg

from app.store.database import dialect_of, path_of

_DEFAULTS: dict[str, dict[str, Any]] = {
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
    """A connection like that of the sqlite3 shell: foreign keys off, and no rules but the database's."""

    connection: Any

    def __init__(self, path: Path) -> None:
        self.connection = sqlite3.connect(path, isolation_level=None, timeout=10)
        self._numbers = itertools.count(1)

    def insert(self, table: str, *, verb: str = "INSERT", **values: Any) -> str:
        """Insert a row, with default values for what does not matter to the test; return its id."""
        unique = {name: f"{table}-{next(self._numbers)}" for name in ("id", *_UNIQUE.get(table, ()))}
        if table == "team_members":
            unique = {}
        row = {**_DEFAULTS[table], **unique, **values}
        placeholders = ", ".join("?" for _ in row)
        self.run(f"{verb} INTO {table} ({', '.join(row)}) VALUES ({placeholders})", *row.values())
        return str(row.get("id", ""))

    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        """Run one statement and return its rows."""
        with closing(self.connection.execute(sql, values)) as cursor:
            return cursor.fetchall()

    def enforce_foreign_keys(self) -> None:
        """Let the database enforce foreign keys from now on."""
        self.run("PRAGMA foreign_keys = ON")

    def drop_trigger(self, name: str) -> None:
        """Drop a trigger on the memories."""
        self.run(f"DROP TRIGGER {name}")

    def add_idle_trigger(self, name: str, event: str) -> None:
        """Create a trigger on the memories that does nothing."""
        self.run(f"CREATE TRIGGER {name} AFTER {event} ON memory_items BEGIN SELECT 1; END")

    @contextmanager
    def without_trigger(self, name: str) -> Iterator[None]:
        """Disable a trigger on the memories within the block."""
        sql = str(self.run("SELECT sql FROM sqlite_master WHERE name = ?", name)[0][0])
        self.drop_trigger(name)
        yield
        self.run(sql)

    def empty_full_text(self) -> None:
        """Delete everything from the full-text index."""
        self.run("INSERT INTO memory_items_fts(memory_items_fts) VALUES ('delete-all')")

    def schema(self) -> list[tuple[Any, ...]]:
        """Return the definitions of everything that the migrations installed."""
        return self.run("SELECT type, name, sql FROM sqlite_master ORDER BY name")

    def close(self) -> None:
        """Close the connection."""
        self.connection.close()


class PostgresqlWriter(RawWriter):
    """A connection like that of psql, which sees every team. Foreign keys are always enforced."""

    def __init__(self, url: str) -> None:
        address = url.replace("postgresql+psycopg", "postgresql", 1)
        self.connection = psycopg.connect(address, autocommit=True, options="-c cmem.team_id=*")
        self._numbers = itertools.count(1)

    def run(self, sql: str, *values: Any) -> list[tuple[Any, ...]]:
        with closing(self.connection.execute(sql.replace("?", "%s"), values or None)) as cursor:
            return cursor.fetchall() if cursor.description else []

    def enforce_foreign_keys(self) -> None:
        pass

    def drop_trigger(self, name: str) -> None:
        self.run(f"DROP TRIGGER {name} ON memory_items")

    def add_idle_trigger(self, name: str, event: str) -> None:
        self.run("CREATE FUNCTION idle() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'")
        self.run(f"CREATE TRIGGER {name} AFTER {event} ON memory_items FOR EACH ROW EXECUTE FUNCTION idle()")

    @contextmanager
    def without_trigger(self, name: str) -> Iterator[None]:
        self.run(f"ALTER TABLE memory_items DISABLE TRIGGER {name}")
        yield
        self.run(f"ALTER TABLE memory_items ENABLE TRIGGER {name}")

    def empty_full_text(self) -> None:
        self.run("DELETE FROM memory_items_fts")

    def schema(self) -> list[tuple[Any, ...]]:
        return [
            *self.run("SELECT proname, pg_get_functiondef(oid) FROM pg_proc WHERE proname ~ '^(cmem|trg)_' ORDER BY 1"),
            *self.run("SELECT tgname, pg_get_triggerdef(oid) FROM pg_trigger ORDER BY tgname"),
            *self.run("SELECT indexname, indexdef FROM pg_indexes WHERE schemaname = 'public' ORDER BY indexname"),
            *self.run("SELECT tablename, policyname, qual FROM pg_policies ORDER BY tablename"),
        ]


def connect(url: str) -> RawWriter:
    """Return a raw writer to a database of either dialect."""
    return PostgresqlWriter(url) if dialect_of(url) == "postgresql" else RawWriter(path_of(url))
