"""Bulk deletes run in batches, each a short transaction, so that other writers never wait long for the lock."""

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import ColumnElement, Connection, Row, Table, delete, false, func, not_, select

from app.caller import TEAM_ADMIN, Caller
from app.errors import Invalid
from app.services.audit import entries
from app.services.memories import context_text, listing
from app.services.projects import projects, sessions
from app.store.database import Database
from app.store.fulltext import MemoryFilters
from app.store.models import agent_events, memory_items, server_sessions
from app.store.scope import owned

_KEY_COLUMNS: Final = (memory_items.c.seq, memory_items.c.project_id, memory_items.c.server_session_id)


def remove_memories(database: Database, caller: Caller, project_id: str) -> int:
    """Delete every memory that a project has now; return how many. After an interruption, the next call continues."""
    with database.read() as connection:
        newest = projects.newest_memory_seq(connection, caller, project_id)
    removed = _delete_in_batches(
        database, partial(projects.delete_memory_batch, caller=caller, project_id=project_id, up_to_seq=newest)
    )
    with database.write() as connection:
        projects.get(connection, caller, project_id)
        entries.record(
            connection, caller, "project.purge", target=("project", project_id), project_id=project_id, count=removed
        )
    return removed


def remove_project(database: Database, caller: Caller, project_id: str) -> None:
    """Delete a project: its memories and events in batches, then the rest at once."""
    with database.read() as connection:
        newest = projects.newest_memory_seq(connection, caller, project_id)
    _delete_in_batches(
        database, partial(projects.delete_memory_batch, caller=caller, project_id=project_id, up_to_seq=newest)
    )
    _delete_in_batches(database, partial(projects.delete_event_batch, caller=caller, project_id=project_id))
    with database.write() as connection:
        projects.remove(connection, caller, project_id)


def remove_matching(
    database: Database, caller: Caller, named: Sequence[str], filters: MemoryFilters, *, dry_run: bool
) -> int:
    """Delete the memories that match the filters; return how many, also in a dry run.

    `named` limits it to these projects, otherwise all in the caller's scope are searched. Raises Invalid without a
    filter, because emptying a project is an operation of its own.
    """
    caller.require(TEAM_ADMIN)
    if not filters:
        raise Invalid.field("body", "requires a filter; use DELETE projects/{id}/memory to empty a project")
    with database.read() as connection:
        matching = listing.select_matching(connection, caller, named, filters)
        newest, count = connection.execute(select(func.max(matching.c.seq), func.count()).select_from(matching)).one()
    if dry_run or not count:
        return int(count)
    removed, last_seq = 0, 0
    while True:
        with database.write() as connection:
            batch = select(matching).where(matching.c.seq > last_seq, matching.c.seq <= newest).order_by(matching.c.seq)
            rows = connection.execute(batch.limit(projects.DELETE_BATCH_ROWS)).all()
            removed += delete_rows(connection, caller, rows, action="memory.delete")
        if len(rows) < projects.DELETE_BATCH_ROWS:
            return removed
        last_seq = rows[-1].seq


def remove_by_key(
    database: Database,
    caller: Caller,
    project_id: str,
    seqs: Sequence[int],
    *,
    action: str,
    unless: ColumnElement[bool] | None = None,
) -> int:
    """Delete memories of a project by `seq`, except those that match `unless`; return how many.

    Each batch writes its own audit entry.
    """
    removed = 0
    for start in range(0, len(seqs), projects.DELETE_BATCH_ROWS):
        batch = seqs[start : start + projects.DELETE_BATCH_ROWS]
        statement = owned(memory_items, caller, *_KEY_COLUMNS).where(
            memory_items.c.project_id == project_id,
            memory_items.c.seq.in_(batch),
            not_(false() if unless is None else unless),
        )
        with database.write() as connection:
            removed += delete_rows(connection, caller, connection.execute(statement).all(), action=action)
    return removed


def remove_session(database: Database, caller: Caller, session_id: str) -> tuple[int, int]:
    """Delete a session with its memories and events; return how many of each."""
    caller.require(TEAM_ADMIN)
    with database.read() as connection:
        session = sessions.get(connection, caller, session_id)
    counts = []
    for table in (memory_items, agent_events):
        counts.append(
            _delete_in_batches(
                database, partial(_delete_some_of_session, caller=caller, table=table, session_id=session_id)
            )
        )
    with database.write() as connection:
        sessions.get(connection, caller, session_id)
        connection.execute(delete(server_sessions).where(server_sessions.c.id == session_id))
        target = ("session", session_id)
        entries.record(connection, caller, "session.delete", target=target, project_id=session.project_id)
    return counts[0], counts[1]


def _delete_some_of_session(connection: Connection, *, caller: Caller, table: Table, session_id: str) -> int:
    (key,) = table.primary_key
    batch = owned(table, caller, key).where(table.c.server_session_id == session_id).limit(projects.DELETE_BATCH_ROWS)
    return connection.execute(delete(table).where(key.in_(batch.scalar_subquery()))).rowcount


def delete_rows(connection: Connection, caller: Caller, rows: Sequence[Row[Any]], *, action: str) -> int:
    """Delete memories, refresh the context text of their sessions, and write an audit entry per project.

    `rows` have `seq`, `project_id` and `server_session_id`. Returns how many memories were deleted.
    """
    removed = connection.execute(delete(memory_items).where(memory_items.c.seq.in_([row.seq for row in rows]))).rowcount
    for session_id in {row.server_session_id for row in rows} - {None}:
        context_text.refresh_session(connection, session_id)
    for project_id, count in Counter(row.project_id for row in rows).items():
        entries.record(connection, caller, action, target=("project", project_id), project_id=project_id, count=count)
    return removed


def _delete_in_batches(database: Database, delete_batch: Callable[[Connection], int]) -> int:
    """Repeat a delete until a batch is not full: concurrent inserts must not keep it running forever."""
    removed = 0
    while True:
        with database.write() as connection:
            count = delete_batch(connection)
        removed += count
        if count < projects.DELETE_BATCH_ROWS:
            return removed
