"""The timeline of a project: memories and sessions before and after a moment, in one total order.

In the same millisecond sessions come before memories, since they began first; memories go by `seq`, sessions by id.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Connection, Table, tuple_

from app.caller import Caller
from app.errors import Invalid, NotFound
from app.services.memories import memories
from app.services.projects import projects
from app.services.search import engine
from app.services.search.engine import Searching
from app.store.database import Database
from app.store.models import memory_items, server_sessions
from app.store.records import Memory, Session, columns
from app.store.scope import owned

DEFAULT_COUNT: Final = 10
MAX_COUNT: Final = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A timeline as it was asked for: around a time (epoch ms), a memory, or the memory that answers `query` best."""

    project_id: str | None = None
    at_epoch: int | None = None
    memory_id: str | None = None
    query: str | None = None
    before: int = DEFAULT_COUNT
    after: int = DEFAULT_COUNT


@dataclass(frozen=True, slots=True)
class Anchor:
    """What a timeline is around: a memory, or a time when `memory` is None."""

    at_epoch: int
    memory: Memory | None = None


@dataclass(frozen=True, slots=True)
class Item:
    """Something that happened at `at_epoch` (epoch ms)."""

    at_epoch: int
    record: Memory | Session

    @property
    def type(self) -> Literal["memory", "session"]:
        """What it is."""
        return "memory" if isinstance(self.record, Memory) else "session"

    @property
    def place(self) -> tuple[int, int, int, str]:
        """Where it stands in the total order."""
        if isinstance(self.record, Memory):
            return self.at_epoch, 1, self.record.seq, ""
        return self.at_epoch, 0, 0, self.record.id


@dataclass(frozen=True, slots=True)
class Timeline:
    """Items in time order; an anchor that is a memory is one of them. Without an anchor the query found nothing."""

    anchor: Anchor | None
    items: Sequence[Item]


@dataclass(frozen=True, slots=True)
class _Source:
    """One kind of row of the timeline, and the columns that order it: a time and a unique one."""

    table: Table
    record: type[Memory] | type[Session]
    order: tuple[ColumnElement[Any], ColumnElement[Any]]


_MEMORIES: Final = _Source(memory_items, Memory, (memory_items.c.created_at_epoch, memory_items.c.seq))
_SESSIONS: Final = _Source(server_sessions, Session, (server_sessions.c.started_at_epoch, server_sessions.c.id))


def around(searching: Searching, database: Database, caller: Caller, asked: Asked) -> Timeline:
    """Return what came before and after the anchor in its project.

    Raises Invalid without a project, Forbidden for one out of reach, NotFound for a memory that is not of it.
    """
    project_id = asked.project_id or caller.project_id
    if project_id is None:
        raise Invalid.field("query.projectId", "name a project, or use a key that is bound to one")
    answer = None if asked.query is None else _answer(searching, database, caller, project_id, asked.query)
    with database.read() as connection:
        projects.require(connection, caller, project_id)
        anchor = _anchor(connection, caller, project_id, asked) if asked.query is None else answer
        if anchor is None:
            return Timeline(None, [])
        before = _beside(connection, caller, project_id, anchor, asked.before, later=False)
        after = _beside(connection, caller, project_id, anchor, asked.after, later=True)
    here = [Item(anchor.at_epoch, anchor.memory)] if anchor.memory else []
    return Timeline(anchor, [*reversed(before), *here, *after])


def _answer(searching: Searching, database: Database, caller: Caller, project_id: str, query: str) -> Anchor | None:
    question = engine.Asked(project_ids=(project_id,), query=query, limit=1)
    hits = searching.search(database, caller, question).hits
    return Anchor(hits[0].memory.created_at_epoch, hits[0].memory) if hits else None


def _anchor(connection: Connection, caller: Caller, project_id: str, asked: Asked) -> Anchor:
    if asked.at_epoch is not None:
        return Anchor(asked.at_epoch)
    memory = memories.get(connection, caller, asked.memory_id or "")
    if memory.project_id != project_id:
        raise NotFound("memory")
    return Anchor(memory.created_at_epoch, memory)


def _beside(
    connection: Connection, caller: Caller, project_id: str, anchor: Anchor, count: int, *, later: bool
) -> list[Item]:
    """Return the items nearest to the anchor on one side, the nearest first."""
    # a time stands before all that happened at it; a memory stands behind the sessions that began at its time
    memory_place = (anchor.at_epoch, anchor.memory.seq if anchor.memory else 0)
    session_place = (anchor.at_epoch + (1 if anchor.memory else 0), "")
    items = [
        Item(getattr(row, source.order[0].name), row)
        for source, place in ((_MEMORIES, memory_place), (_SESSIONS, session_place))
        for row in _nearest(connection, caller, project_id, source, place, count, later=later)
    ]
    return sorted(items, key=lambda item: item.place, reverse=not later)[:count]


def _nearest(
    connection: Connection,
    caller: Caller,
    project_id: str,
    source: _Source,
    place: tuple[int, int | str],
    count: int,
    *,
    later: bool,
) -> list[Any]:
    order, at = tuple_(*source.order), tuple_(*place)
    statement = (
        owned(source.table, caller, *columns(source.table, source.record))
        .where(source.table.c.project_id == project_id, order > at if later else order < at)
        .order_by(*(source.order if later else [column.desc() for column in source.order]))
        .limit(count)
    )
    return [source.record(*row) for row in connection.execute(statement)]
