"""All tables. The migrations create them, and what a table definition cannot express: triggers and full text."""

from typing import Final

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    ForeignKey,
    ForeignKeyConstraint,
    Index,
    Integer,
    MetaData,
    Table,
    Text,
    UniqueConstraint,
    text,
)

from app.store.json_column import Json

metadata: Final = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

_SEQUENCE = BigInteger().with_variant(Integer, "sqlite")
"""An explicit integer key, because full text refers to it, and VACUUM may renumber implicit rowids."""


def _id() -> Column[str]:
    return Column("id", Text, primary_key=True)


def _epoch(name: str, *, nullable: bool = False) -> Column[int]:
    return Column(name, BigInteger, nullable=nullable)


def _flag(name: str) -> Column[bool]:
    return Column(name, Boolean, nullable=False, server_default=text("false"))


def _project_of_team() -> ForeignKeyConstraint:
    """Return the foreign key that includes the team: a row cannot refer to a project of another team."""
    return ForeignKeyConstraint(["team_id", "project_id"], ["projects.team_id", "projects.id"], ondelete="CASCADE")


teams = Table(
    "teams",
    metadata,
    _id(),
    Column("name", Text, nullable=False),
    Column("slug", Text, nullable=False, unique=True),
    Column("metadata", Json(), nullable=False),
    _epoch("created_at_epoch"),
    _epoch("updated_at_epoch"),
)

team_members = Table(
    "team_members",
    metadata,
    Column("team_id", Text, ForeignKey("teams.id", ondelete="CASCADE"), primary_key=True),
    Column("user_id", Text, primary_key=True),
    Column("role", Text, CheckConstraint("role IN ('viewer','member','admin','owner')", name="role"), nullable=False),
    _epoch("created_at_epoch"),
    _epoch("updated_at_epoch"),
)

projects = Table(
    "projects",
    metadata,
    _id(),
    Column("team_id", Text, ForeignKey("teams.id", ondelete="CASCADE"), nullable=False),
    Column("name", Text, nullable=False),
    Column("slug", Text, nullable=False),
    Column("root_path", Text),
    Column("metadata", Json(), nullable=False),
    Column("retention", Json(list), nullable=False),
    _epoch("created_at_epoch"),
    _epoch("updated_at_epoch"),
    UniqueConstraint("team_id", "id"),
    UniqueConstraint("team_id", "slug"),
    UniqueConstraint("team_id", "root_path"),
    Index(None, "team_id", "created_at_epoch", "id"),
)

project_statistics = Table(
    "project_statistics",
    metadata,
    Column("project_id", Text, primary_key=True),
    Column("team_id", Text, nullable=False),
    Column("memories", BigInteger, nullable=False),
    Column("characters", BigInteger, nullable=False),
    Column("changes", BigInteger, nullable=False),
)
"""Kept exact by triggers: the size of a project, and a counter that every change of indexed text increments."""

api_keys = Table(
    "api_keys",
    metadata,
    _id(),
    Column("public_id", Text, nullable=False, unique=True),
    Column("secret_hash", Text, nullable=False),
    Column("team_id", Text, ForeignKey("teams.id", ondelete="CASCADE")),
    Column("project_id", Text),
    Column("user_id", Text),
    Column("name", Text),
    Column("label", Text),
    Column("scopes", Json(list), nullable=False),
    Column("created_by", Text),
    Column("rotated_from", Text),
    _epoch("created_at_epoch"),
    _epoch("updated_at_epoch"),
    _epoch("expires_at_epoch", nullable=True),
    _epoch("revoked_at_epoch", nullable=True),
    _epoch("last_used_at_epoch", nullable=True),
    _project_of_team(),
    ForeignKeyConstraint(["team_id", "user_id"], ["team_members.team_id", "team_members.user_id"], ondelete="CASCADE"),
    Index(None, "team_id", "created_at_epoch", "id"),
)

server_sessions = Table(
    "server_sessions",
    metadata,
    _id(),
    Column("team_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("external_session_id", Text),
    Column("content_session_id", Text),
    Column("memory_session_id", Text),
    Column("platform_source", Text, nullable=False),
    Column("agent_id", Text),
    Column("agent_type", Text),
    Column("title", Text),
    Column("metadata", Json(), nullable=False),
    _epoch("started_at_epoch"),
    _epoch("ended_at_epoch", nullable=True),
    _epoch("created_at_epoch"),
    _epoch("updated_at_epoch"),
    _project_of_team(),
    Index(None, "team_id", "project_id", "started_at_epoch", "id"),
    Index(None, "team_id", "started_at_epoch", "id"),
    Index(
        "uq_server_sessions_external",
        "project_id",
        "platform_source",
        "external_session_id",
        unique=True,
        sqlite_where=text("external_session_id IS NOT NULL"),
        postgresql_where=text("external_session_id IS NOT NULL"),
    ),
    Index("ix_server_sessions_content", "project_id", "content_session_id"),
    Index("ix_server_sessions_memory", "project_id", "memory_session_id"),
)

agent_events = Table(
    "agent_events",
    metadata,
    _id(),
    Column("team_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("server_session_id", Text, ForeignKey("server_sessions.id", ondelete="SET NULL")),
    Column("content_session_id", Text),
    Column("memory_session_id", Text),
    Column("platform_source", Text, nullable=False),
    Column("source_type", Text, nullable=False),
    Column("event_type", Text, nullable=False),
    Column("source_event_id", Text),
    Column("payload", Json(), nullable=False),
    Column("metadata", Json(), nullable=False),
    Column("event_hash", Text, nullable=False),
    _epoch("occurred_at_epoch"),
    _epoch("created_at_epoch"),
    _project_of_team(),
    UniqueConstraint("project_id", "event_hash"),
    Index(None, "team_id", "project_id", "occurred_at_epoch", "id"),
    Index(None, "team_id", "occurred_at_epoch", "id"),
    Index(None, "server_session_id"),
    Index("ix_agent_events_unlinked", "project_id", "content_session_id"),
)

memory_items = Table(
    "memory_items",
    metadata,
    Column("seq", _SEQUENCE, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("team_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("server_session_id", Text, ForeignKey("server_sessions.id", ondelete="SET NULL")),
    Column("dedup_scope", Text, nullable=False),
    Column("version", Integer, nullable=False),
    Column("created_by", Text),
    _flag("pinned"),
    Column("superseded_by", Text, ForeignKey("memory_items.id", ondelete="SET NULL")),
    Column("legacy_observation_id", BigInteger),
    Column(
        "kind",
        Text,
        CheckConstraint("kind IN ('observation','summary','prompt','manual')", name="kind"),
        nullable=False,
    ),
    Column("type", Text, nullable=False),
    Column("title", Text),
    Column("subtitle", Text),
    Column("text", Text),
    Column("narrative", Text),
    Column("facts", Json(list), nullable=False),
    Column("concepts", Json(list), nullable=False),
    Column("files_read", Json(list), nullable=False),
    Column("files_modified", Json(list), nullable=False),
    Column("metadata", Json(), nullable=False),
    Column("platform_source", Text, nullable=False),
    Column("content_hash", Text, nullable=False),
    Column("search_text", Text),
    Column("neighbour_text", Text),
    _epoch("created_at_epoch"),
    _epoch("updated_at_epoch"),
    _project_of_team(),
    UniqueConstraint("project_id", "dedup_scope", "kind", "content_hash"),
    Index(None, "team_id", "project_id", "created_at_epoch", "seq"),
    Index(None, "team_id", "created_at_epoch", "seq"),
    Index(None, "server_session_id", "created_at_epoch", "seq"),
    Index(
        "ix_memory_items_superseded_by",
        "superseded_by",
        sqlite_where=text("superseded_by IS NOT NULL"),
        postgresql_where=text("superseded_by IS NOT NULL"),
    ),
    Index(
        "ix_memory_items_legacy_observation_id",
        "project_id",
        "legacy_observation_id",
        sqlite_where=text("legacy_observation_id IS NOT NULL"),
        postgresql_where=text("legacy_observation_id IS NOT NULL"),
    ),
    sqlite_autoincrement=True,
)

memory_sources = Table(
    "memory_sources",
    metadata,
    _id(),
    Column("team_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("memory_item_id", Text, ForeignKey("memory_items.id", ondelete="CASCADE"), nullable=False),
    Column(
        "source_type",
        Text,
        CheckConstraint(
            "source_type IN ('observation','session_summary','user_prompt','manual','import')", name="source_type"
        ),
        nullable=False,
    ),
    Column("origin", Text, nullable=False),
    Column("legacy_table", Text, nullable=False),
    Column("legacy_id", Text, nullable=False),
    Column("uri", Text),
    Column("metadata", Json(), nullable=False),
    _epoch("created_at_epoch"),
    _project_of_team(),
    UniqueConstraint("project_id", "origin", "legacy_table", "legacy_id"),
    Index(None, "memory_item_id"),
)

audit_log = Table(
    "audit_log",
    metadata,
    Column("seq", _SEQUENCE, primary_key=True, autoincrement=True),
    Column("id", Text, nullable=False, unique=True),
    Column("team_id", Text),
    Column("project_id", Text),
    Column("actor_id", Text),
    Column("user_id", Text),
    Column("action", Text, nullable=False),
    Column("target_type", Text, nullable=False),
    Column("target_id", Text),
    Column("outcome", Text, CheckConstraint("outcome IN ('done','refused')", name="outcome"), nullable=False),
    Column("count", Integer, nullable=False),
    Column("request_id", Text),
    _epoch("created_at_epoch"),
    Index(None, "team_id", "created_at_epoch", "seq"),
    sqlite_autoincrement=True,
)
"""Ids only, never content. No foreign keys: it outlives what it describes. Append-only, by triggers."""

audit_retention = Table(
    "audit_retention",
    metadata,
    Column("id", Integer, CheckConstraint("id = 1", name="single"), primary_key=True),
    _epoch("before_epoch"),
)
"""The only way to delete from the audit log: rows older than `before_epoch` may be deleted."""

operations = Table(
    "operations",
    metadata,
    _id(),
    Column("team_id", Text),
    Column("project_id", Text),
    Column("kind", Text, nullable=False),
    Column(
        "status",
        Text,
        CheckConstraint("status IN ('pending','running','done','failed')", name="status"),
        nullable=False,
    ),
    Column("done", BigInteger, nullable=False),
    Column("total", BigInteger),
    Column("arguments", Json(), nullable=False),
    Column("result", Json()),
    Column("error", Text),
    Column("created_by", Text),
    Column("owner", Text),
    _epoch("heartbeat_at_epoch", nullable=True),
    _epoch("created_at_epoch"),
    _epoch("finished_at_epoch", nullable=True),
    Index(None, "team_id", "created_at_epoch", "id"),
)

idempotency_records = Table(
    "idempotency_records",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("idempotency_key", Text, primary_key=True),
    Column("route", Text, nullable=False),
    Column("body_hash", Text, nullable=False),
    Column("status", Integer, nullable=False),
    Column("ids", Json(list), nullable=False),
    _epoch("created_at_epoch"),
    Index(None, "created_at_epoch"),
)

usage_counters = Table(
    "usage_counters",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("month", Text, primary_key=True),
    Column("kind", Text, primary_key=True),
    Column("team_id", Text),
    Column("count", BigInteger, nullable=False),
    Index(None, "team_id", "month"),
)

request_counters = Table(
    "request_counters",
    metadata,
    Column("key_id", Text, primary_key=True),
    Column("period", Text, primary_key=True),
    Column("count", BigInteger, nullable=False),
    _epoch("updated_at_epoch"),
    Index(None, "updated_at_epoch"),
)
"""Counters shared by all processes, for rate limits (per minute) and quotas (per month)."""

vector_outbox = Table(
    "vector_outbox",
    metadata,
    Column("memory_id", Text, primary_key=True),
    Column("team_id", Text, nullable=False),
    Column("project_id", Text, nullable=False),
    Column("operation", Text, CheckConstraint("operation IN ('upsert','delete')", name="operation"), nullable=False),
    Column("version", Integer, nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("last_error", Text),
    _flag("failed"),
    Column("next_attempt_at_epoch", BigInteger, nullable=False, server_default=text("0")),
    Column("claimed_by", Text),
    Column("claimed_until_epoch", BigInteger, nullable=False, server_default=text("0")),
    _epoch("enqueued_at_epoch"),
    Index(None, "failed", "next_attempt_at_epoch", "enqueued_at_epoch"),
    Index(None, "project_id", "failed"),
)
"""One pending entry per memory, written only by triggers. No foreign keys: a deletion must outlive its row."""
