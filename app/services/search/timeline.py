"""The timeline of a project: memories and sessions before and after a moment, in one total order.

Within one millisecond, sessions come before memories, since they started first; memories are ordered by `seq`, sessions
by id.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Connection, Table, tuple_

from app.caller import Caller
from app.errors import Invalid, NotFound
from app.services.memories import memories
from app.services.projects import projects
from app.services.search.engine import SearchEngine
from app.services.search.query import SearchParams
from app.store.database import Database
from app.store.models import memory_items, server_sessions
from app.store.records import Memory, Session, columns
from app.store.scope import owned

DEFAULT_COUNT: Final = 10
MAX_COUNT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class TimelineParams:
    """What a timeline is requested for: a time (epoch ms), a memory, or the memory that matches `query` best."""

    project_id: str | None = None
    at_epoch: int | None = None
    memory_id: str | None = None
    query: str | None = None
    before: int = DEFAULT_COUNT
    after: int = DEFAULT_COUNT


@dataclass(frozen=True, slots=True)
class Anchor:
    """The centre of a timeline: a memory, or a time when `memory` is None."""

    at_epoch: int
    memory: Memory | None = None


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """Something that happened at `at_epoch` (epoch ms)."""

    at_epoch: int
    record: Memory | Session

    @property
    def type(self) -> Literal["memory", "session"]:
        """The kind of record."""
        return "memory" if isinstance(self.record, Memory) else "session"

    @property
    def position(self) -> tuple[int, int, int, str]:
        """Its position in the total order."""
        if isinstance(self.record, Memory):
            return self.at_epoch, 1, self.record.seq, ""
        return self.at_epoch, 0, 0, self.record.id


@dataclass(frozen=True, slots=True)
class Timeline:
    """Items in time order, including an anchor that is a memory. Without an anchor, the query found nothing."""

    anchor: Anchor | None
    items: Sequence[TimelineEntry]


@dataclass(frozen=True, slots=True)
class _Source:
    """One kind of record on the timeline, and the columns that order it: a time and a unique key."""

    table: Table
    record: type[Memory] | type[Session]
    order: tuple[ColumnElement[Any], ColumnElement[Any]]


_MEMORIES: Final = _Source(memory_items, Memory, (memory_items.c.created_at_epoch, memory_items.c.seq))
_SESSIONS: Final = _Source(server_sessions, Session, (server_sessions.c.started_at_epoch, server_sessions.c.id))


def around(engine: SearchEngine, database: Database, caller: Caller, params: TimelineParams) -> Timeline:
    """Return what came before and after the anchor in its project.

    Raises Invalid without a project, Forbidden for one out of reach, NotFound for a memory that is not in it.
    """
    project_id = params.project_id or caller.project_id
    if project_id is None:
        raise Invalid.field("query.projectId", "must be given unless the API key is bound to a project")
    best_match = None if params.query is None else _best_match(engine, database, caller, project_id, params.query)
    with database.read() as connection:
        projects.require(connection, caller, project_id)
        anchor = _anchor(connection, caller, project_id, params) if params.query is None else best_match
        if anchor is None:
            return Timeline(None, [])
        before = _side(connection, caller, project_id, anchor, params.before, later=False)
        after = _side(connection, caller, project_id, anchor, params.after, later=True)
    centre = [TimelineEntry(anchor.at_epoch, anchor.memory)] if anchor.memory else []
    return Timeline(anchor, [*reversed(before), *centre, *after])


def _best_match(engine: SearchEngine, database: Database, caller: Caller, project_id: str, query: str) -> Anchor | None:
    search = SearchParams(project_ids=(project_id,), query=query, limit=1)
    hits = engine.search(database, caller, search).hits
    return Anchor(hits[0].memory.created_at_epoch, hits[0].memory) if hits else None


def _anchor(connection: Connection, caller: Caller, project_id: str, params: TimelineParams) -> Anchor:
    if params.at_epoch is not None:
        return Anchor(params.at_epoch)
    memory = memories.get(connection, caller, params.memory_id or "")
    if memory.project_id != project_id:
        raise NotFound("memory")
    return Anchor(memory.created_at_epoch, memory)


def _side(
    connection: Connection, caller: Caller, project_id: str, anchor: Anchor, count: int, *, later: bool
) -> list[TimelineEntry]:
    """Return the items before or after the anchor, the closest first."""
    # A time comes before everything that happened at it; a memory comes after the sessions that started at its time.
    memory_position = (anchor.at_epoch, anchor.memory.seq if anchor.memory else 0)
    session_position = (anchor.at_epoch + (1 if anchor.memory else 0), "")
    items = [
        TimelineEntry(getattr(row, source.order[0].name), row)
        for source, position in ((_MEMORIES, memory_position), (_SESSIONS, session_position))
        for row in _closest(connection, caller, project_id, source, position, count, later=later)
    ]
    return sorted(items, key=lambda item: item.position, reverse=not later)[:count]


def _closest(
    connection: Connection,
    caller: Caller,
    project_id: str,
    source: _Source,
    position: tuple[int, int | str],
    count: int,
    *,
    later: bool,
) -> list[Any]:
    order, anchor = tuple_(*source.order), tuple_(*position)
    statement = (
        owned(source.table, caller, *columns(source.table, source.record))
        .where(source.table.c.project_id == project_id, order > anchor if later else order < anchor)
        .order_by(*(source.order if later else [column.desc() for column in source.order]))
        .limit(count)
    )
    return [source.record(*row) for row in connection.execute(statement)]
