"""Erasing a person: deletes everything of one actor, platform or metadata value from a team, and returns a receipt."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
from sqlalchemy import ColumnElement, Connection, Table, Text, and_, delete, func, literal, or_, type_coerce

from app.caller import TEAM_ADMIN, Caller
from app.clock import new_id, now_ms
from app.errors import Invalid
from app.services.audit import entries
from app.services.deletion import bulk_delete
from app.services.projects.projects import DELETE_BATCH_ROWS
from app.services.shared import platforms
from app.store import json_column
from app.store.database import Database
from app.store.json_search import holds_pair, lists_any
from app.store.models import (
    agent_events,
    api_keys,
    audit_log,
    idempotency_records,
    memory_items,
    memory_sources,
    server_sessions,
    vector_outbox,
)
from app.store.scope import owned, unscoped


@dataclass(frozen=True, slots=True, kw_only=True)
class Selector:
    """Selects the rows of a person; a row must match every criterion that is given.

    `actor` is the id of a key or of a member; a member covers all of their keys. `metadata` maps keys of a row's
    metadata to the text that they must have.
    """

    platform_source: str | None = None
    actor: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)


class Receipt(msgspec.Struct, kw_only=True):
    """What was deleted, or would be. `audit_entries` counts those that still contain the deleted ids, but no text."""

    id: str
    at_epoch: int
    dry_run: bool
    memories: int = 0
    sources: int = 0
    full_text: int = 0
    vectors: int = 0
    outbox: int = 0
    events: int = 0
    sessions: int = 0
    idempotency_records: int = 0
    audit_entries: int = 0


def erase(database: Database, caller: Caller, selector: Selector, *, dry_run: bool) -> Receipt:
    """Delete the selected sessions with all they contain, and the selected rows outside of them.

    Runs in batches; after an interruption, the next call deletes the rest. Vectors leave the index with the next sync,
    and text leaves the disk with the next maintenance. Raises Invalid for an empty selector.
    """
    caller.require(TEAM_ADMIN)
    receipt = Receipt(id=new_id(), at_epoch=now_ms(), dry_run=dry_run)
    with database.read() as connection:
        selection = _Selection(connection, caller, selector)
        if dry_run:
            return selection.count(connection, receipt)
    steps = ((memory_items, _delete_memories), (agent_events, _delete_events), (server_sessions, _delete_sessions))
    for table, delete_batch in steps:
        while True:
            with database.write() as connection:
                statement = owned(table, caller, *_columns(table)).where(selection.conditions(connection)[table.name])
                rows = connection.execute(statement.limit(DELETE_BATCH_ROWS)).all()
                delete_batch(connection, caller, rows, receipt)
                _delete_cached_responses(connection, caller, [row.id for row in rows], receipt)
            if len(rows) < DELETE_BATCH_ROWS:
                break
    with database.write() as connection:
        removed = receipt.memories + receipt.events + receipt.sessions
        entries.record(connection, caller, "person.erase", target=("erasure", receipt.id), count=removed)
    return receipt


class _Selection:
    """The rows that a selector matches."""

    def __init__(self, connection: Connection, caller: Caller, selector: Selector) -> None:
        if not (selector.platform_source or selector.actor or selector.metadata):
            raise Invalid.field("body", "at least one of platformSource, actor and metadata is required")
        self._caller = caller
        self._selector = selector
        self._keys = _keys_of(connection, caller, selector.actor)

    def conditions(self, connection: Connection) -> dict[str, ColumnElement[bool]]:
        """Return which rows to delete, by table: a session includes everything in it."""
        session = self._matches(server_sessions, "session.start")
        sessions = owned(server_sessions, self._caller, server_sessions.c.id).where(session)
        return {
            server_sessions.name: session,
            **{
                table.name: or_(self._matches(table, action), table.c.server_session_id.in_(sessions))
                for table, action in ((memory_items, "memory.create"), (agent_events, "event.create"))
            },
        }

    def count(self, connection: Connection, receipt: Receipt) -> Receipt:
        """Fill the receipt with what would be deleted."""
        conditions = self.conditions(connection)
        for name, table in (("memories", memory_items), ("events", agent_events), ("sessions", server_sessions)):
            statement = owned(table, self._caller, func.count()).where(conditions[table.name])
            setattr(receipt, name, connection.scalar(statement) or 0)
        receipt.full_text = receipt.vectors = receipt.memories
        return receipt

    def _matches(self, table: Table, action: str) -> ColumnElement[bool]:
        conditions: list[ColumnElement[bool]] = []
        if self._selector.platform_source is not None:
            conditions.append(table.c.platform_source == platforms.normalise(self._selector.platform_source))
        if self._selector.actor is not None:
            created = owned(audit_log, self._caller, audit_log.c.target_id).where(
                audit_log.c.actor_id.in_(self._keys), audit_log.c.action == action
            )
            by_row = table.c.created_by.in_(self._keys) if "created_by" in table.c else None
            by_log = table.c.id.in_(created)
            conditions.append(by_log if by_row is None else or_(by_row, by_log))
        conditions += [_has_metadata(table, key, value) for key, value in self._selector.metadata.items()]
        return and_(*conditions)


def _keys_of(connection: Connection, caller: Caller, actor: str | None) -> list[str]:
    if actor is None:
        return []
    of_member = owned(api_keys, caller, api_keys.c.id).where(api_keys.c.user_id == actor)
    return [actor, *connection.scalars(of_member)]


def _has_metadata(table: Table, key: str, value: str) -> ColumnElement[bool]:
    return holds_pair(type_coerce(table.c.metadata, Text), literal(key), literal(value))


def _columns(table: Table) -> Sequence[ColumnElement[Any]]:
    names = ("seq", "id", "project_id", "server_session_id")
    return [table.c[name] for name in names if name in table.c]


def _delete_memories(connection: Connection, caller: Caller, rows: Sequence[Any], receipt: Receipt) -> None:
    ids = [row.id for row in rows]
    sources = owned(memory_sources, caller, func.count()).where(memory_sources.c.memory_item_id.in_(ids))
    receipt.sources += connection.scalar(sources) or 0
    removed = bulk_delete.delete_rows(connection, caller, rows, action="memory.delete")
    receipt.memories += removed
    receipt.full_text += removed
    pending = unscoped(vector_outbox, func.count()).where(vector_outbox.c.memory_id.in_(ids))
    receipt.outbox += connection.scalar(pending) or 0
    receipt.vectors += removed


def _delete_events(connection: Connection, _: Caller, rows: Sequence[Any], receipt: Receipt) -> None:
    statement = delete(agent_events).where(agent_events.c.id.in_([row.id for row in rows]))
    receipt.events += connection.execute(statement).rowcount


def _delete_sessions(connection: Connection, _: Caller, rows: Sequence[Any], receipt: Receipt) -> None:
    statement = delete(server_sessions).where(server_sessions.c.id.in_([row.id for row in rows]))
    receipt.sessions += connection.execute(statement).rowcount


def _delete_cached_responses(connection: Connection, caller: Caller, ids: Sequence[str], receipt: Receipt) -> None:
    """Delete idempotency records that would replay deleted rows; count the audit entries, which only contain ids."""
    mentions = lists_any(type_coerce(idempotency_records.c.ids, Text), literal(json_column.encode(ids)))
    receipt.idempotency_records += connection.execute(delete(idempotency_records).where(mentions)).rowcount
    mentioning = owned(audit_log, caller, func.count()).where(audit_log.c.target_id.in_(ids))
    receipt.audit_entries += connection.scalar(mentioning) or 0
