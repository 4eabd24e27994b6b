"""Exports projects with their sessions, events, memories, sources and rules, as lines from one snapshot."""

from collections import Counter, defaultdict
from collections.abc import Generator, Iterable, Iterator, Sequence
from functools import cache
from itertools import islice
from typing import Any, Final, TypeVar

import msgspec
from sqlalchemy import Connection, Row, Select, Table

from app.caller import TEAM_ADMIN, Caller
from app.services.audit import entries
from app.services.deletion import retention_rules
from app.services.projects import projects
from app.services.transfer.transfer_records import (
    End,
    EventRecord,
    Header,
    MemoryRecord,
    ProjectRecord,
    Record,
    SessionRecord,
    SourceRecord,
    SupersessionRecord,
)
from app.store.database import Database
from app.store.models import agent_events, memory_items, memory_sources, server_sessions
from app.store.models import projects as projects_table
from app.store.records import Project
from app.store.scope import owned

_ROWS_AT_ONCE: Final = 500
_CHUNK_BYTES: Final = 65_536

_COUNTED: Final[dict[type, str]] = {
    ProjectRecord: "projects",
    SessionRecord: "sessions",
    EventRecord: "events",
    MemoryRecord: "memories",
}

T = TypeVar("T")


def select_projects(connection: Connection, caller: Caller, project_id: str | None) -> list[Project]:
    """Return the projects to export: one, or all in the caller's scope. Needs team:admin; raises NotFound."""
    caller.require(TEAM_ADMIN)
    if project_id is not None:
        return [projects.get(connection, caller, project_id)]
    return projects.list_all(connection, caller)


def record_export(connection: Connection, caller: Caller, selected: Sequence[Project]) -> None:
    """Write an audit entry for each exported project."""
    for project in selected:
        entries.record(connection, caller, "project.export", target=("project", project.id), project_id=project.id)


def chunks(database: Database, caller: Caller, selected: Sequence[Project]) -> Generator[bytes, None, None]:
    """Yield an export as NDJSON in chunks of about 64 KB, read from one snapshot in constant memory."""
    buffer = bytearray()
    for record in records(database, caller, selected):
        buffer += msgspec.json.encode(record)
        buffer += b"\n"
        if len(buffer) >= _CHUNK_BYTES:
            yield bytes(buffer)
            buffer.clear()
    yield bytes(buffer)


def records(database: Database, caller: Caller, selected: Sequence[Project]) -> Iterator[Record]:
    """Yield an export record by record."""
    counts: Counter[str] = Counter()
    yield Header()
    with database.read() as connection:
        for project in selected:
            for record in _of_project(connection, caller, project.id):
                if (noun := _COUNTED.get(type(record))) is not None:
                    counts[noun] += 1
                yield record
    yield End(**{noun: counts[noun] for noun in _COUNTED.values()})


def _of_project(connection: Connection, caller: Caller, project_id: str) -> Iterator[Record]:
    """Yield the lines of a project, in an order independent of ids wherever rows differ in anything else."""
    project = connection.execute(
        owned(projects_table, caller, *_columns(projects_table, ProjectRecord)).where(projects_table.c.id == project_id)
    ).first()
    if project is None:  # deleted since it was selected
        return
    yield ProjectRecord(**{**project._mapping, "retention": retention_rules.from_json(project.retention)})
    in_order = server_sessions.c.started_at_epoch, server_sessions.c.id
    for row in _rows(connection, _select(server_sessions, SessionRecord, caller, project_id).order_by(*in_order)):
        yield SessionRecord(**_fields(server_sessions, SessionRecord, row))
    in_order = agent_events.c.occurred_at_epoch, agent_events.c.event_hash
    for row in _rows(connection, _select(agent_events, EventRecord, caller, project_id).order_by(*in_order)):
        yield EventRecord(**_fields(agent_events, EventRecord, row))
    yield from _memories(connection, caller, project_id)
    yield from _supersessions(connection, caller, project_id)


def _memories(connection: Connection, caller: Caller, project_id: str) -> Iterator[MemoryRecord]:
    in_order = memory_items.c.created_at_epoch, memory_items.c.seq
    statement = _select(memory_items, MemoryRecord, caller, project_id).order_by(*in_order)
    for batch in _batches(_rows(connection, statement)):
        sources = _sources(connection, caller, [row.id for row in batch])
        for row in batch:
            yield MemoryRecord(**_fields(memory_items, MemoryRecord, row), sources=sources[row.id])


def _sources(connection: Connection, caller: Caller, memory_ids: Sequence[str]) -> dict[str, list[SourceRecord]]:
    of_memory = memory_sources.c.memory_item_id
    statement = owned(memory_sources, caller, of_memory, *_columns(memory_sources, SourceRecord)).where(
        of_memory.in_(memory_ids)
    )
    in_order = (memory_sources.c[name] for name in ("created_at_epoch", "origin", "legacy_table", "legacy_id"))
    sources: defaultdict[str, list[SourceRecord]] = defaultdict(list)
    for memory_id, *values in connection.execute(statement.order_by(*in_order)):
        sources[memory_id].append(SourceRecord(**dict(zip(SourceRecord.__struct_fields__, values, strict=True))))
    return sources


def _supersessions(connection: Connection, caller: Caller, project_id: str) -> Iterator[SupersessionRecord]:
    item = memory_items.c
    statement = owned(memory_items, caller, item.id, item.superseded_by).where(
        item.project_id == project_id, item.superseded_by.is_not(None)
    )
    for row in _rows(connection, statement.order_by(item.created_at_epoch, item.seq)):
        yield SupersessionRecord(memory_id=row.id, superseded_by=row.superseded_by)


def _select(table: Table, record: type[msgspec.Struct], caller: Caller, project_id: str) -> Select[Any]:
    return owned(table, caller, *_columns(table, record)).where(table.c.project_id == project_id)


def _columns(table: Table, record: type[msgspec.Struct]) -> list[Any]:
    return [table.c[name] for name in _names(table, record)]


def _fields(table: Table, record: type[msgspec.Struct], row: Row[Any]) -> dict[str, Any]:
    """Return a row as a dict; SQLAlchemy's own row mapping looks up every name again, which is slower."""
    return dict(zip(_names(table, record), row, strict=True))


@cache
def _names(table: Table, record: type[msgspec.Struct]) -> tuple[str, ...]:
    return tuple(name for name in record.__struct_fields__ if name in table.c)


def _rows(connection: Connection, statement: Select[Any]) -> Iterable[Row[Any]]:
    return connection.execute(statement.execution_options(yield_per=_ROWS_AT_ONCE))


def _batches(rows: Iterable[T]) -> Iterator[list[T]]:
    iterator = iter(rows)
    while batch := list(islice(iterator, _ROWS_AT_ONCE)):
        yield batch
