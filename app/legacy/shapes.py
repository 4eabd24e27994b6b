"""The contents of a claude-mem database as frozen values, in this product's terms. Knows no SQL."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Kind = Literal["observation", "summary", "prompt", "manual"]
LegacyId = int | str
"""The id of a row in its table: a number, or a text in the server's tables."""

SESSIONS = "sdk_sessions"
OBSERVATIONS = "observations"
SUMMARIES = "session_summaries"
PROMPTS = "user_prompts"
SERVER_SESSIONS = "server_sessions"
SERVER_MEMORIES = "memory_items"
SERVER_PROJECTS = "projects"

KIND_OF_TABLE: Mapping[str, Kind] = {PROMPTS: "prompt", OBSERVATIONS: "observation", SUMMARIES: "summary"}
"""The tables with one kind of memory each, in reading order: prompts come first among rows of equal time."""

SESSION_TABLES = (SESSIONS, SERVER_SESSIONS)
MEMORY_TABLES = (*KIND_OF_TABLE, SERVER_MEMORIES)
"""The tables of claude-mem's own server, which newer versions keep in the same file, are read last."""

UNKNOWN_PROJECT = "unknown-project"
"""The project of a row that has neither a project nor a session: claude-mem's own name for it."""

INTERNAL_PROJECT = "observer-sessions"
"""The project of claude-mem's own observer sessions, which are of no use to people."""


@dataclass(frozen=True, slots=True)
class ReaderOptions:
    """Which rows to include.

    `internal` includes the rows of claude-mem's own observer. `other_devices` includes rows that a sync copied from
    another device; without it they are left to the import of that device's database.
    """

    internal: bool = False
    other_devices: bool = True


@dataclass(frozen=True, slots=True)
class LegacySession:
    """A row of a session table. Times are epoch milliseconds; `warnings` list the repairs."""

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

    `session_id` is the legacy id of its session, None for an orphan; after a project merge, the session may belong
    to another one. `metadata` has everything without a field of its own under `claudeMem`.
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
    """A row that is left out, and why."""

    legacy_table: str
    legacy_id: LegacyId
    reason: str


@dataclass(frozen=True, slots=True)
class Failed:
    """A row that cannot be read, and why."""

    legacy_table: str
    legacy_id: LegacyId
    reason: str
