"""The lines of an export: one record each, tagged by `record`. Order: header, project by project, end.

A project is followed by its sessions, events, memories with their sources, and supersessions.
"""

from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from app.services.deletion.retention_rules import Rule

FORMAT: Final = "cmem-server-export"
VERSION: Final = 1

_Id = Annotated[str, Meta(min_length=1, max_length=200)]
_Label = Annotated[str, Meta(min_length=1, max_length=1_000)]
_Text = Annotated[str, Meta(max_length=1_000_000)]
_Strings = Annotated[list[_Text], Meta(max_length=10_000)]
_EpochMs = Annotated[int, Meta(ge=0, le=253_402_300_799_999)]
_Count = Annotated[int, Meta(ge=0)]
_Integer = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class _Record(
    msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True, tag_field="record"
):
    """One line."""


class Header(_Record, frozen=True, kw_only=True, tag="header"):
    """The first line: the format and its version."""

    format: Literal["cmem-server-export"] = FORMAT
    version: int = VERSION


class ProjectRecord(_Record, frozen=True, kw_only=True, tag="project"):
    """A project; all lines up to the next project belong to it."""

    id: _Id
    name: _Label
    slug: _Label
    root_path: _Label | None
    metadata: dict[str, Any]
    retention: list[Rule]
    created_at_epoch: _EpochMs
    updated_at_epoch: _EpochMs


class SessionRecord(_Record, frozen=True, kw_only=True, tag="session"):
    """One run of an agent."""

    id: _Id
    external_session_id: _Label | None
    content_session_id: _Label | None
    memory_session_id: _Label | None
    platform_source: _Label
    agent_id: _Label | None
    agent_type: _Label | None
    title: _Text | None
    metadata: dict[str, Any]
    started_at_epoch: _EpochMs
    ended_at_epoch: _EpochMs | None
    created_at_epoch: _EpochMs
    updated_at_epoch: _EpochMs


class EventRecord(_Record, frozen=True, kw_only=True, tag="event"):
    """Something an agent did. Events with the same `event_hash` are the same event."""

    id: _Id
    server_session_id: _Id | None
    content_session_id: _Label | None
    memory_session_id: _Label | None
    platform_source: _Label
    source_type: _Label
    event_type: _Label
    source_event_id: _Label | None
    payload: dict[str, Any]
    metadata: dict[str, Any]
    event_hash: _Label
    occurred_at_epoch: _EpochMs
    created_at_epoch: _EpochMs


class SourceRecord(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """Where a memory came from."""

    id: _Id
    source_type: Literal["observation", "session_summary", "user_prompt", "manual", "import"]
    origin: _Label
    legacy_table: str
    legacy_id: str
    uri: str | None
    metadata: dict[str, Any]
    created_at_epoch: _EpochMs


class MemoryRecord(_Record, frozen=True, kw_only=True, tag="memory"):
    """A memory with its sources. `dedup_scope` is the session within which equal content is stored once."""

    id: _Id
    server_session_id: _Id | None
    dedup_scope: str
    created_by: _Label | None
    pinned: bool
    legacy_observation_id: _Integer | None
    kind: Literal["observation", "summary", "prompt", "manual"]
    type: _Label
    title: _Text | None
    subtitle: _Text | None
    text: _Text | None
    narrative: _Text | None
    facts: _Strings
    concepts: _Strings
    files_read: _Strings
    files_modified: _Strings
    metadata: dict[str, Any]
    platform_source: _Label
    created_at_epoch: _EpochMs
    updated_at_epoch: _EpochMs
    sources: list[SourceRecord]


class SupersessionRecord(_Record, frozen=True, kw_only=True, tag="supersession"):
    """One memory of the project supersedes another; both are on earlier lines."""

    memory_id: _Id
    superseded_by: _Id


class End(_Record, frozen=True, kw_only=True, tag="end"):
    """The last line: a file without it is truncated."""

    projects: _Count
    sessions: _Count
    events: _Count
    memories: _Count


Record = Header | ProjectRecord | SessionRecord | EventRecord | MemoryRecord | SupersessionRecord | End
