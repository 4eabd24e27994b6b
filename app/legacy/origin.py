"""The stable identity of a claude-mem database, which all its copies share, even if they have grown since."""

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
    """Return `claude-mem:` and 32 hex digits, derived from the oldest rows of the database.

    Two databases differ in their creation time, their first session and their first observation, and none of these
    changes while a database grows. Prompts and summaries are used only if it has neither sessions nor observations.
    """
    landmarks = [landmark for table, columns in _LANDMARKS if (landmark := _oldest(connection, table, columns))]
    if not any(landmark[0] != "schema_versions" for landmark in landmarks):
        landmarks += [
            landmark for table, columns in _LATER_LANDMARKS if (landmark := _oldest(connection, table, columns))
        ]
    digest = hashlib.sha256(json.dumps(landmarks, ensure_ascii=True).encode()).hexdigest()
    return f"claude-mem:{digest[:32]}"


def _oldest(connection: sqlite3.Connection, table: str, columns: tuple[str, ...]) -> list[str | None] | None:
    row = next(tables.rows(connection, table), None)
    if not isinstance(row, tables.LegacyRow):
        return None
    return [table, *(row.text(column) for column in columns)]
