"""Builds databases in the schemas that claude-mem has had over the years, row by row."""

import sqlite3
from pathlib import Path
from typing import Any

CURRENT = {
    "schema_versions": "id INTEGER PRIMARY KEY, version INTEGER UNIQUE NOT NULL, applied_at TEXT NOT NULL",
    "sdk_sessions": """id INTEGER PRIMARY KEY AUTOINCREMENT, content_session_id TEXT NOT NULL, memory_session_id TEXT,
        project TEXT NOT NULL, platform_source TEXT NOT NULL DEFAULT 'claude', user_prompt TEXT, started_at TEXT,
        started_at_epoch INTEGER, completed_at TEXT, completed_at_epoch INTEGER, status TEXT DEFAULT 'active',
        worker_port INTEGER, prompt_counter INTEGER DEFAULT 0, custom_title TEXT""",
    "observations": """id INTEGER PRIMARY KEY AUTOINCREMENT, memory_session_id TEXT, project TEXT, text TEXT,
        type TEXT, title TEXT, subtitle TEXT, facts TEXT, narrative TEXT, concepts TEXT, files_read TEXT,
        files_modified TEXT, prompt_number INTEGER, discovery_tokens INTEGER DEFAULT 0, created_at TEXT,
        created_at_epoch INTEGER, content_hash TEXT, generated_by_model TEXT, merged_into_project TEXT, metadata TEXT,
        synced_at INTEGER, origin_device_id TEXT, origin_local_id TEXT, sync_rev TEXT DEFAULT '1'""",
    "session_summaries": """id INTEGER PRIMARY KEY AUTOINCREMENT, memory_session_id TEXT, project TEXT, request TEXT,
        investigated TEXT, learned TEXT, completed TEXT, next_steps TEXT, files_read TEXT, files_edited TEXT,
        notes TEXT, prompt_number INTEGER, created_at TEXT, created_at_epoch INTEGER, merged_into_project TEXT,
        origin_device_id TEXT, origin_local_id TEXT""",
    "user_prompts": """id INTEGER PRIMARY KEY AUTOINCREMENT, session_db_id INTEGER, content_session_id TEXT,
        prompt_number INTEGER, prompt_text TEXT, created_at TEXT, created_at_epoch INTEGER, origin_device_id TEXT,
        origin_local_id TEXT""",
}
"""The newest documented schema."""

FIRST = {
    "schema_versions": CURRENT["schema_versions"],
    "sdk_sessions": """id INTEGER PRIMARY KEY AUTOINCREMENT, claude_session_id TEXT UNIQUE NOT NULL,
        sdk_session_id TEXT UNIQUE, project TEXT NOT NULL, user_prompt TEXT, started_at TEXT NOT NULL,
        started_at_epoch INTEGER NOT NULL, completed_at TEXT, completed_at_epoch INTEGER, status TEXT NOT NULL""",
    "observations": """id INTEGER PRIMARY KEY AUTOINCREMENT, sdk_session_id TEXT NOT NULL, project TEXT NOT NULL,
        text TEXT NOT NULL, type TEXT NOT NULL, created_at TEXT NOT NULL, created_at_epoch INTEGER NOT NULL""",
}
"""The schema of the first releases: other column names, free text only, no prompts or summaries yet."""

SERVER = {
    "projects": "id TEXT PRIMARY KEY, name TEXT NOT NULL, slug TEXT, created_at_epoch INTEGER",
    "server_sessions": """id TEXT PRIMARY KEY, project_id TEXT NOT NULL, content_session_id TEXT,
        memory_session_id TEXT, platform_source TEXT DEFAULT 'claude', title TEXT,
        status TEXT DEFAULT 'active', metadata TEXT DEFAULT '{}', started_at_epoch INTEGER,
        completed_at_epoch INTEGER, updated_at_epoch INTEGER""",
    "memory_items": """id TEXT PRIMARY KEY, project_id TEXT NOT NULL, server_session_id TEXT,
        legacy_observation_id INTEGER, kind TEXT DEFAULT 'observation', type TEXT, title TEXT, subtitle TEXT, text TEXT,
        narrative TEXT, facts TEXT DEFAULT '[]', concepts TEXT DEFAULT '[]', files_read TEXT DEFAULT '[]',
        files_modified TEXT DEFAULT '[]', metadata TEXT DEFAULT '{}', created_at_epoch INTEGER,
        updated_at_epoch INTEGER""",
}
"""The tables that newer releases keep for their own server, in the same file."""

MARCH = 1_772_439_300_000
"""2026-03-02T08:15:00Z in epoch milliseconds."""


def create(path: Path, shape: dict[str, str] = CURRENT) -> sqlite3.Connection:
    """Create a database with these tables in WAL mode; every statement commits."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode = wal")
    for table, columns in shape.items():
        connection.execute(f"CREATE TABLE {table} ({columns})")
    if "schema_versions" in shape:
        insert(connection, "schema_versions", version=4, applied_at="2025-10-01T09:59:08.206Z")
    return connection


def insert(connection: sqlite3.Connection, table: str, **columns: Any) -> int:
    """Add one row and return its id."""
    names, marks = ", ".join(columns), ", ".join("?" for _ in columns)
    cursor = connection.execute(f"INSERT INTO {table} ({names}) VALUES ({marks})", tuple(columns.values()))
    return int(cursor.lastrowid or 0)


def add_session(connection: sqlite3.Connection, name: str = "one", **columns: Any) -> int:
    """Add a session `content-<name>` of the project `shop`."""
    usual = {
        "content_session_id": f"content-{name}",
        "memory_session_id": f"memory-{name}",
        "project": "shop",
        "started_at_epoch": MARCH,
    }
    return insert(connection, "sdk_sessions", **usual | columns)


def add_observation(connection: sqlite3.Connection, title: str | None, **columns: Any) -> int:
    """Add an observation to the session `one`."""
    usual = {
        "memory_session_id": "memory-one",
        "project": "shop",
        "type": "bugfix",
        "title": title,
        "created_at_epoch": MARCH,
    }
    return insert(connection, "observations", **usual | columns)


def add_prompt(connection: sqlite3.Connection, text: str, **columns: Any) -> int:
    """Add a prompt to the session `one`."""
    usual = {
        "session_db_id": 1,
        "content_session_id": "content-one",
        "prompt_text": text,
        "prompt_number": 1,
        "created_at_epoch": MARCH,
    }
    return insert(connection, "user_prompts", **usual | columns)


def add_summary(connection: sqlite3.Connection, request: str | None, **columns: Any) -> int:
    """Add a summary to the session `one`."""
    usual = {"memory_session_id": "memory-one", "project": "shop", "request": request, "created_at_epoch": MARCH}
    return insert(connection, "session_summaries", **usual | columns)


def sample(path: Path) -> Path:
    """Create a small database with one session, an observation, a summary and a prompt; return its path."""
    connection = create(path)
    add_session(connection)
    add_observation(connection, "Retry storm")
    add_summary(connection, "Stop the storm")
    add_prompt(connection, "Please stop the storm")
    connection.close()
    return path
