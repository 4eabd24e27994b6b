"""Inspects a database of either dialect: its schema as text, a snapshot of everything in it, and its full text."""

import hashlib
import sqlite3
import subprocess
from contextlib import closing

from sqlalchemy import make_url

from app.store.database import Database, dialect_of, path_of
from tests import postgresql


def schema(url: str) -> str:
    """Return all definitions: tables, indexes, triggers, functions and policies."""
    if dialect_of(url) == "postgresql":
        return _dump(url, "--schema-only")
    with closing(sqlite3.connect(path_of(url))) as connection:
        rows = connection.execute("SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name")
        return "\n".join(map(str, rows))


def snapshot(url: str) -> str:
    """Return a text that changes when anything is changed: a hash of the file, or all definitions and rows."""
    if dialect_of(url) == "postgresql":
        return _dump(url)
    return hashlib.sha256(path_of(url).read_bytes()).hexdigest()


def indexed_seqs(database: Database, word: str) -> list[int]:
    """Return the keys of the memories that the full-text index has for a word."""
    with database.read() as connection:
        return list(connection.exec_driver_sql(_INDEXED_SEQS[database.dialect].format(word)).scalars())


def object_names(database: Database) -> set[str]:
    """Return the names of all our tables, triggers and functions."""
    with database.read() as connection:
        return set(connection.exec_driver_sql(_OBJECT_NAMES[database.dialect]).scalars())


_INDEXED_SEQS = {
    "sqlite": "SELECT rowid FROM memory_items_fts WHERE memory_items_fts MATCH '{}' ORDER BY rowid",
    "postgresql": "SELECT seq FROM memory_items_fts WHERE own @@ (cmem_words('{}'))[1]::tsquery ORDER BY seq",
}
_OBJECT_NAMES = {
    "sqlite": "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%'",
    "postgresql": r"""
        SELECT tablename FROM pg_tables WHERE schemaname = current_schema()
        UNION ALL SELECT tgname FROM pg_trigger WHERE NOT tgisinternal
        UNION ALL SELECT proname FROM pg_proc
          WHERE pronamespace = current_schema()::regnamespace AND proname ~ '^(cmem|trg)_'
        UNION ALL SELECT dictname FROM pg_ts_dict WHERE dictnamespace = current_schema()::regnamespace
    """,
}


def _dump(url: str, *options: str) -> str:
    programs = postgresql.binaries()
    assert programs is not None
    address = make_url(url).set(drivername="postgresql", username="postgres").render_as_string()
    command = [programs / "pg_dump", "--no-privileges", *options, address]
    text = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout
    return "\n".join(line for line in text.splitlines() if not line.startswith("\\"))  # \restrict has a random token
