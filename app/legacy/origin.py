"""The stable identity of a claude-mem database: a copy of it, and a copy that has grown since, are the same origin."""

import hashlib
import json
import sqlite3

from app.legacy import tables
from app.legacy.shapes import OBSERVATIONS, PROMPTS, SESSIONS, SUMMARIES

_LANDMARKS = (
    ("schema_versions", ("applied_at",)),
    (SESSIONS, ("content_session_id", "started_at_epoch")),
    (OBSERVATIONS, ("created_at_epoch", "title", "narrative", "text")),
)
_LATER_LANDMARKS = (
    (PROMPTS, ("created_at_epoch", "prompt_text")),
    (SUMMARIES, ("created_at_epoch", "request")),
)


def identify(connection: sqlite3.Connection) -> str:
    """Name the database by its oldest rows: `claude-mem:` and 32 hex digits.

    Two people's databases differ in the moment of their making, in their first session, and in their first
    observation; none of the three changes while a database grows. Prompts and summaries speak only for a file that
    has neither sessions nor observations.
    """
    marks = [mark for table, columns in _LANDMARKS if (mark := _oldest(connection, table, columns))]
    if not any(mark[0] != "schema_versions" for mark in marks):
        marks += [mark for table, columns in _LATER_LANDMARKS if (mark := _oldest(connection, table, columns))]
    digest = hashlib.sha256(json.dumps(marks, ensure_ascii=True).encode()).hexdigest()
    return f"claude-mem:{digest[:32]}"


def _oldest(connection: sqlite3.Connection, table: str, columns: tuple[str, ...]) -> list[str | None] | None:
    row = next(tables.rows(connection, table), None)
    if not isinstance(row, tables.Row):
        return None
    return [table, *(row.text(column) for column in columns)]
