"""What a claude-mem database holds, as frozen values in this product's words. Knows no SQL."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["observation", "summary", "prompt", "manual"]
LegacyId = int | str
"""What names a row in its table: a number, and in the server's tables a text. No session has both."""

SESSIONS = "sdk_sessions"
OBSERVATIONS = "observations"
SUMMARIES = "session_summaries"
PROMPTS = "user_prompts"
SERVER_SESSIONS = "server_sessions"
SERVER_MEMORIES = "memory_items"
SERVER_PROJECTS = "projects"

KIND_OF_TABLE: Mapping[str, Kind] = {PROMPTS: "prompt", OBSERVATIONS: "observation", SUMMARIES: "summary"}
"""The tables that hold one kind of memory each, in reading order: of equal times, the prompt came first."""

SESSION_TABLES = (SESSIONS, SERVER_SESSIONS)
MEMORY_TABLES = (*KIND_OF_TABLE, SERVER_MEMORIES)
"""What newer versions of claude-mem keep for their own server, in the same file, comes after the older tables."""

UNKNOWN_PROJECT = "unknown-project"
"""Where a row goes that names no project and has no session: claude-mem's own word for it."""

INTERNAL_PROJECT = "observer-sessions"
"""The project in which claude-mem keeps its observer's own sessions; nothing in it is for people."""


@dataclass(frozen=True, slots=True)
class Rules:
    """Which rows are wanted beyond the plain ones.

    `internal` brings in the rows of claude-mem's own observer. `other_devices` brings in rows that a sync copied from
    another device; without it they are left to the import of that device's database.
    """

    internal: bool = False
    other_devices: bool = True


@dataclass(frozen=True, slots=True)
class LegacySession:
    """A row of a session table. Times are epoch milliseconds; `warnings` say what had to be repaired."""

    legacy_table: str
    legacy_id: LegacyId
    project: str
    content_session_id: str | None
    memory_session_id: str | None
    platform_source: str
    title: str | None
    status: str
    started_at_epoch_ms: int
    completed_at_epoch_ms: int | None
    metadata: Mapping[str, Any]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class LegacyMemory:
    """A row of one of the memory tables.

    `session_id` is the legacy id of its session, None for an orphan; that session may belong to another project than
    the memory, when the memory's project was merged. `metadata` keeps under `claudeMem` what has no field of its own.
    """

    kind: Kind
    legacy_table: str
    legacy_id: LegacyId
    project: str
    session_id: LegacyId | None
    platform_source: str
    created_at_epoch_ms: int
    type: str
    title: str | None = None
    subtitle: str | None = None
    text: str | None = None
    narrative: str | None = None
    facts: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    files_read: tuple[str, ...] = ()
    files_modified: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that the rules leave out, and why."""

    legacy_table: str
    legacy_id: LegacyId
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A row that cannot be read, and why."""

    legacy_table: str
    legacy_id: LegacyId
    reason: str
