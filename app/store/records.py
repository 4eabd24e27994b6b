"""Rows as frozen structs, one per noun; the fields are the columns, in the order they are selected."""

from typing import Any, TypeVar

import msgspec
from sqlalchemy import ColumnElement, FromClause

from app.caller import Role


class Record(msgspec.Struct, frozen=True):
    """A row as it was read. To change it, call a service."""


R = TypeVar("R", bound=Record)


def columns(table: FromClause, record: type[Record]) -> list[ColumnElement[Any]]:
    """Return the columns of a table that a record has, in the record's order."""
    return [table.c[name] for name in record.__struct_fields__]


class Team(Record, frozen=True):
    """A tenant."""

    id: str
    name: str
    slug: str
    metadata: dict[str, Any]
    created_at_epoch: int
    updated_at_epoch: int


class Member(Record, frozen=True):
    """A person's membership in a team; `user_id` is any name that the team gives its people."""

    team_id: str
    user_id: str
    role: Role
    created_at_epoch: int
    updated_at_epoch: int


class Project(Record, frozen=True):
    """A project of a team: the boundary of search and of project keys."""

    id: str
    team_id: str
    name: str
    slug: str
    root_path: str | None
    metadata: dict[str, Any]
    created_at_epoch: int
    updated_at_epoch: int


class ApiKey(Record, frozen=True):
    """An API key as it may be shown: without its secret or the hash of it."""

    id: str
    public_id: str
    team_id: str | None
    project_id: str | None
    user_id: str | None
    name: str | None
    label: str | None
    scopes: list[str]
    created_by: str | None
    rotated_from: str | None
    created_at_epoch: int
    updated_at_epoch: int
    expires_at_epoch: int | None
    revoked_at_epoch: int | None
    last_used_at_epoch: int | None


class Session(Record, frozen=True):
    """One session of an agent."""

    id: str
    team_id: str
    project_id: str
    external_session_id: str | None
    content_session_id: str | None
    memory_session_id: str | None
    platform_source: str
    agent_id: str | None
    agent_type: str | None
    title: str | None
    metadata: dict[str, Any]
    started_at_epoch: int
    ended_at_epoch: int | None
    created_at_epoch: int
    updated_at_epoch: int


class Event(Record, frozen=True):
    """Something that an agent did, as its hooks reported it."""

    id: str
    team_id: str
    project_id: str
    server_session_id: str | None
    content_session_id: str | None
    memory_session_id: str | None
    platform_source: str
    source_type: str
    event_type: str
    source_event_id: str | None
    payload: dict[str, Any]
    metadata: dict[str, Any]
    occurred_at_epoch: int
    created_at_epoch: int


class Memory(Record, frozen=True):
    """A memory. `seq` is its key in full text; `version` increases with every change."""

    seq: int
    id: str
    team_id: str
    project_id: str
    server_session_id: str | None
    dedup_scope: str
    version: int
    created_by: str | None
    pinned: bool
    superseded_by: str | None
    legacy_observation_id: int | None
    kind: str
    type: str
    title: str | None
    subtitle: str | None
    text: str | None
    narrative: str | None
    facts: list[Any]
    concepts: list[Any]
    files_read: list[Any]
    files_modified: list[Any]
    metadata: dict[str, Any]
    platform_source: str
    content_hash: str
    created_at_epoch: int
    updated_at_epoch: int

    @property
    def content(self) -> str | None:
        """The first of narrative, text and title that is not empty."""
        return self.narrative or self.text or self.title or None


class Source(Record, frozen=True):
    """Where a memory came from."""

    id: str
    team_id: str
    project_id: str
    memory_item_id: str
    source_type: str
    origin: str
    legacy_table: str
    legacy_id: str
    uri: str | None
    metadata: dict[str, Any]
    created_at_epoch: int


class AuditEntry(Record, frozen=True):
    """Who did what to which resource: ids and counts, never content."""

    seq: int
    id: str
    team_id: str | None
    project_id: str | None
    actor_id: str | None
    user_id: str | None
    action: str
    target_type: str
    target_id: str | None
    outcome: str
    count: int
    request_id: str | None
    created_at_epoch: int
