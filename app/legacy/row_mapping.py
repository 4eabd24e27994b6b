"""Maps the columns of a claude-mem row to fields, with one function per table. Knows single rows, no SQL."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from app.legacy.shapes import (
    KIND_OF_TABLE,
    OBSERVATIONS,
    PROMPTS,
    SERVER_MEMORIES,
    SUMMARIES,
    UNKNOWN_PROJECT,
    Kind,
    LegacyId,
    LegacyMemory,
    LegacySession,
)
from app.legacy.tables import LegacyRow

_LIST_SEPARATORS = "|\n,"
_SENTENCE_SEPARATORS = "|\n"  # a fact is a sentence, which may contain commas
_TITLE_LENGTH = 120
_SUMMARY_PARTS = ("request", "investigated", "learned", "completed", "next_steps", "notes")
_MARKED_AS_HASHLESS = "__null_migration_"
_DROPPED_COLUMNS = frozenset(
    {
        "id",
        "memory_session_id",  # references; kept only if they are dangling
        "content_session_id",
        "session_db_id",
        "server_session_id",
        "project_id",
        "legacy_observation_id",
        "user_prompt",  # also a row of its own, which the user may have deleted
        "content_hash",
        "created_at",
        "started_at",
        "updated_at_epoch",
        "worker_port",
        "prompt_counter",
        "synced_at",
        "sync_rev",
    }
)
"""Columns that mean nothing outside claude-mem; all others without a field of their own go to the metadata."""


@dataclass(frozen=True, slots=True)
class SessionKey:
    """What a memory takes from its session. `project` and the start time are defaults for a memory without them."""

    legacy_id: LegacyId
    project: str
    platform_source: str
    started_at_epoch_ms: int


def session(row: LegacyRow, *, previous_ms: int) -> LegacySession:
    """Map a row of a session table. `previous_ms`, the time of the row before it, is the default for its own."""
    return LegacySession(
        legacy_table=row.table,
        legacy_id=row.legacy_id,
        project=_project(row, None),
        content_session_id=row.text("content_session_id"),
        memory_session_id=row.text("memory_session_id"),
        platform_source=row.text("platform_source") or "claude",
        title=row.text("custom_title") or row.text("title"),
        status=row.text("status") or "active",
        started_at_epoch_ms=_time(row, previous_ms, "started_at_epoch", "started_at"),
        completed_at_epoch_ms=row.moment("completed_at_epoch", "completed_at"),
        metadata=_metadata(row),
        warnings=tuple(row.warnings),
    )


def memory(row: LegacyRow, key: SessionKey | None, *, previous_ms: int) -> LegacyMemory:
    """Map a row of a memory table. `key` is its session, None for an orphan."""
    fields = _FIELDS[row.table](row)
    project = _project(row, key)
    fallback_ms = key.started_at_epoch_ms if key else previous_ms
    return LegacyMemory(
        kind=KIND_OF_TABLE.get(row.table) or _stored_kind(row),
        legacy_table=row.table,
        legacy_id=row.legacy_id,
        project=project,
        session_id=key.legacy_id if key else None,
        platform_source=key.platform_source if key else row.text("platform_source") or "claude",
        created_at_epoch_ms=_time(row, fallback_ms, "created_at_epoch", "created_at"),
        metadata=_metadata(row, **_lost_session(row, key, project)),
        warnings=tuple(row.warnings),
        **fields,
    )


def identity(row: LegacyRow) -> bytes:
    """Return the identity of an observation by claude-mem's own rule: its session and its content hash.

    For rows older than that hash it is computed: the first 16 hex digits of SHA-256 over session, title and narrative,
    joined by NUL. Without title and narrative, the other texts are hashed.
    """
    session_id = row.text("memory_session_id") or ""
    stored = row.text("content_hash")
    if stored is None or stored.startswith(_MARKED_AS_HASHLESS):
        words = [row.text("title") or "", row.text("narrative") or ""]
        if not any(words):
            words = [row.text(name) or "" for name in ("text", "subtitle", "facts", "concepts")]
        stored = hashlib.sha256("\0".join([session_id, *words]).encode()).hexdigest()[:16]
    return hashlib.sha256(f"{session_id}\0{stored}".encode()).digest()


def is_empty(entry: LegacyMemory) -> bool:
    """Say whether a memory has no searchable text."""
    return not (entry.title or entry.subtitle or entry.text or entry.narrative or entry.facts or entry.concepts)


def _observation(row: LegacyRow) -> dict[str, Any]:
    return {
        "type": row.text("type") or "observation",
        "title": row.text("title"),
        "subtitle": row.text("subtitle"),
        "text": row.text("text"),
        "narrative": row.text("narrative"),
        "facts": row.strings("facts", separators=_SENTENCE_SEPARATORS),
        "concepts": row.strings("concepts", separators=_LIST_SEPARATORS),
        "files_read": row.strings("files_read", separators=_LIST_SEPARATORS),
        "files_modified": row.strings("files_modified", separators=_LIST_SEPARATORS),
    }


def _summary(row: LegacyRow) -> dict[str, Any]:
    parts = [(name, content) for name in _SUMMARY_PARTS if (content := row.text(name))]
    return {
        "type": "summary",
        "title": _first_line(row.text("request")),
        "narrative": "\n".join(f"{name.replace('_', ' ').capitalize()}: {content}" for name, content in parts) or None,
        "files_read": row.strings("files_read", separators=_LIST_SEPARATORS),
        "files_modified": row.strings("files_edited", separators=_LIST_SEPARATORS),
    }


def _prompt(row: LegacyRow) -> dict[str, Any]:
    return {"type": "prompt", "text": row.text("prompt_text")}


_FIELDS: Mapping[str, Callable[[LegacyRow], dict[str, Any]]] = {
    OBSERVATIONS: _observation,
    SUMMARIES: _summary,
    PROMPTS: _prompt,
    SERVER_MEMORIES: _observation,
}


def _stored_kind(row: LegacyRow) -> Kind:
    match row.text("kind"):
        case "summary" | "prompt" | "manual" as kind:
            return kind
        case _:
            return "observation"


def _first_line(content: str | None) -> str | None:
    if content is None:
        return None
    line = content.strip().splitlines()[0]
    return line if len(line) <= _TITLE_LENGTH else line[: _TITLE_LENGTH - 1].rstrip() + "…"


def _project(row: LegacyRow, key: SessionKey | None) -> str:
    named = row.text("merged_into_project") or row.text("project")
    if named:
        return named.strip()
    fallback = key.project if key else UNKNOWN_PROJECT
    # Prompts never name a project but take that of their session, so only an orphan gets a warning.
    if row.table != PROMPTS or not key:
        row.warnings.append(f"project: missing, assigned to {fallback}")
    return fallback


def _time(row: LegacyRow, fallback_ms: int, *columns: str) -> int:
    moment = row.moment(*columns)
    if moment is None:
        row.warnings.append(f"{columns[0]}: missing, taken from the session or the previous row")
    return fallback_ms if moment is None else moment


def _metadata(row: LegacyRow, **more: str) -> dict[str, Any]:
    metadata = row.mapping("metadata")
    kept = {**row.rest(_DROPPED_COLUMNS), **row.unreadable, **more}
    return {**metadata, "claudeMem": kept} if kept else metadata


def _lost_session(row: LegacyRow, key: SessionKey | None, project: str) -> dict[str, str]:
    """Return the id of the session that the memory cannot be linked to: it is missing, or in another project."""
    if key and key.project == project:
        return {}
    name = row.text("memory_session_id") or row.text("content_session_id") or row.text("server_session_id")
    if key is None:
        row.warnings.append(f"session: {name} is not in this database" if name else "session: missing")
    return {"session": name} if name else {}
