"""The vector mirror's outbox, and the rows it mirrors: what has changed and is not in the index yet.

Entries are written by triggers only, one per memory; here they are claimed, settled, deferred and set aside. The index
belongs to the server, so these statements see all teams. Any number of processes drain: none waits for a client or for
another drainer, since rows that somebody else is changing are passed over; what is thus left claimed is claimed again.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Connection, Text, and_, cast, delete, func, literal, or_, select, update
from sqlalchemy import false as sql_false

from app.store.models import memory_items, project_statistics, projects, vector_outbox
from app.store.records import Record, columns
from app.store.scope import every
from app.store.upsert import upsert

Operation = Literal["upsert", "delete"]

ENQUEUE_ROWS: Final = 2_000
"""Rows enqueued per transaction: the write lock is held well under 0.2 s."""


class MemoryText(Record, frozen=True):
    """What of a memory is embedded, and what its documents say of it."""

    id: str
    team_id: str
    project_id: str
    version: int
    kind: str
    type: str
    title: str | None
    subtitle: str | None
    narrative: str | None
    text: str | None
    facts: list[Any]
    created_at_epoch: int
    legacy_observation_id: int | None


class Entry(Record, frozen=True):
    """One memory that is to be mirrored, as it was when it was claimed."""

    memory_id: str
    team_id: str
    project_id: str
    operation: Operation
    version: int
    attempts: int


class Backlog(Record, frozen=True):
    """What a project still waits for; `upserts` are the memories among it that there are, failed ones too."""

    project_id: str
    pending: int
    failed: int
    upserts: int
    oldest_enqueued_at_epoch: int | None


class FailedEntry(Record, frozen=True):
    """An entry that was set aside, and why."""

    memory_id: str
    project_id: str
    attempts: int
    last_error: str | None


class ProjectSize(Record, frozen=True):
    """How many memories a project holds."""

    project_id: str
    team_id: str
    memories: int


_OUTBOX: Final = vector_outbox.c
_TEXT: Final = columns(memory_items, MemoryText)


def claim(connection: Connection, owner: str, *, now_ms: int, lease_ms: int, limit: int) -> list[Entry]:
    """Take up to `limit` due entries for this owner; nobody else gets them before the lease is over.

    What the owner still holds is what an earlier batch of his could not bring to its end.
    """
    due = (
        every(vector_outbox, *columns(vector_outbox, Entry))
        .where(_is_due(owner, now_ms))
        .order_by(_OUTBOX.next_attempt_at_epoch, _OUTBOX.enqueued_at_epoch)
        .limit(limit)
        .with_for_update(skip_locked=True)  # SQLite has one writer, and needs none
    )
    entries = [Entry(*row) for row in connection.execute(due)]
    taken = update(vector_outbox).where(_OUTBOX.memory_id.in_([entry.memory_id for entry in entries]))
    connection.execute(taken.values(claimed_by=owner, claimed_until_epoch=now_ms + lease_ms))
    return entries


def has_due(connection: Connection, owner: str, *, now_ms: int) -> bool:
    """Say whether there is anything for this owner to claim."""
    due = every(vector_outbox, _OUTBOX.memory_id).where(_is_due(owner, now_ms))
    return connection.execute(due.limit(1)).first() is not None


def _is_due(owner: str, now_ms: int) -> ColumnElement[bool]:
    is_free = or_(_OUTBOX.claimed_until_epoch <= now_ms, _OUTBOX.claimed_by == owner)
    return and_(_OUTBOX.failed.is_(False), _OUTBOX.next_attempt_at_epoch <= now_ms, is_free)


def still_mine(connection: Connection, owner: str, entries: Iterable[Entry], *, until_ms: int) -> list[Entry]:
    """Return the entries that nobody has changed since, and whose claim lasts at least until then."""
    by_id = {entry.memory_id: entry for entry in entries}
    kept = every(vector_outbox, _OUTBOX.memory_id, _OUTBOX.version).where(
        _OUTBOX.memory_id.in_(list(by_id)), _OUTBOX.claimed_by == owner, _OUTBOX.claimed_until_epoch >= until_ms
    )
    return [by_id[memory_id] for memory_id, version in connection.execute(kept) if by_id[memory_id].version == version]


def settle(connection: Connection, owner: str, entries: Sequence[Entry]) -> None:
    """Delete entries that are mirrored; one that changed meanwhile stays pending for its new version."""
    held = _held(connection, _OUTBOX.claimed_by == owner, _OUTBOX.memory_id.in_([one.memory_id for one in entries]))
    unchanged = [entry.memory_id for entry in entries if held.get(entry.memory_id) == entry.version]
    if unchanged:
        connection.execute(delete(vector_outbox).where(_OUTBOX.memory_id.in_(unchanged)))


def release(connection: Connection, owner: str) -> None:
    """Give back every claim of this owner."""
    _give_back(connection, _OUTBOX.claimed_by == owner)


def release_place(connection: Connection, place: str) -> None:
    """Give back every claim of the owners of a place, which are known to be dead."""
    _give_back(connection, _OUTBOX.claimed_by.startswith(place, autoescape=True))


def postpone(connection: Connection, owner: str, entries: Sequence[Entry], *, until_ms: int) -> None:
    """Give back claims that cannot be served yet; that is no failed attempt."""
    among = _OUTBOX.memory_id.in_([entry.memory_id for entry in entries])
    _give_back(connection, _OUTBOX.claimed_by == owner, among, next_attempt_at_epoch=until_ms)


def bring_again(connection: Connection, project_id: str) -> None:
    """Have what drainers hold of a project brought once more: they may be writing to a collection that is no more."""
    held = and_(_OUTBOX.project_id == project_id, _OUTBOX.claimed_by.is_not(None))
    connection.execute(update(vector_outbox).where(held).values(version=_OUTBOX.version + 1))


def _give_back(connection: Connection, *of_claims: ColumnElement[bool], **values: int) -> None:
    held = _held(connection, *of_claims)
    if held:
        given = update(vector_outbox).where(_OUTBOX.memory_id.in_(list(held)))
        connection.execute(given.values(claimed_by=None, claimed_until_epoch=0, **values))


def _held(connection: Connection, *of_claims: ColumnElement[bool]) -> dict[str, int]:
    """Return the version by memory of claims, kept from changing; those that a client is changing are left out."""
    held = every(vector_outbox, _OUTBOX.memory_id, _OUTBOX.version).where(*of_claims).with_for_update(skip_locked=True)
    return {row.memory_id: row.version for row in connection.execute(held)}


def defer(connection: Connection, owner: str, entry: Entry, *, error: str, retry_at_ms: int | None) -> None:
    """Note a failed attempt: tried again at that time, or set aside when there is none."""
    unchanged = update(vector_outbox).where(
        _OUTBOX.memory_id == entry.memory_id, _OUTBOX.version == entry.version, _OUTBOX.claimed_by == owner
    )
    connection.execute(
        unchanged.values(
            attempts=entry.attempts + 1,
            last_error=error,
            failed=retry_at_ms is None,
            next_attempt_at_epoch=retry_at_ms or 0,
            claimed_by=None,
            claimed_until_epoch=0,
        )
    )


def retry_failed(connection: Connection, project_id: str | None = None) -> int:
    """Take set-aside entries up again; return how many."""
    failed = update(vector_outbox).where(_OUTBOX.failed.is_(True), _in_project(_OUTBOX.project_id, project_id))
    return connection.execute(failed.values(failed=sql_false(), attempts=0, next_attempt_at_epoch=0)).rowcount


def enqueue(connection: Connection, entries: Sequence[Entry], *, now_ms: int) -> None:
    """Ask for memories to be mirrored (again), behind what clients have changed; what is pending stays as it is."""
    rows = [
        {
            "memory_id": entry.memory_id,
            "team_id": entry.team_id,
            "project_id": entry.project_id,
            "operation": entry.operation,
            "version": entry.version,
            "enqueued_at_epoch": now_ms,
            "next_attempt_at_epoch": now_ms,
        }
        for entry in entries
    ]
    if rows:
        connection.execute(upsert(vector_outbox).on_conflict_do_nothing(), rows)


def enqueue_slice(connection: Connection, project_id: str, *, after_seq: int, now_ms: int) -> int | None:
    """Ask for the next ENQUEUE_ROWS memories of a project to be mirrored; return the last key, None at the end."""
    in_project = memory_items.c.project_id == project_id
    keys = every(memory_items, memory_items.c.seq).where(in_project, memory_items.c.seq > after_seq)
    last = connection.scalars(keys.order_by(memory_items.c.seq).limit(ENQUEUE_ROWS)).all()
    if not last:
        return None
    is_pending = select(_OUTBOX.memory_id).where(_OUTBOX.memory_id == memory_items.c.id).exists()
    slice_ = every(
        memory_items,
        *(memory_items.c[name] for name in ("id", "team_id", "project_id", "version")),
        literal("upsert"),
        literal(now_ms),
        literal(now_ms),
    ).where(
        memory_items.c.project_id == project_id,
        memory_items.c.seq > after_seq,
        memory_items.c.seq <= last[-1],
        ~is_pending,
    )
    names = ["memory_id", "team_id", "project_id", "version", "operation", "enqueued_at_epoch", "next_attempt_at_epoch"]
    connection.execute(upsert(vector_outbox).from_select(names, slice_).on_conflict_do_nothing())
    return int(last[-1])


def page(connection: Connection, project_id: str, *, after_seq: int, limit: int) -> list[tuple[int, MemoryText]]:
    """Return a project's memories with their keys, in key order behind `after_seq`."""
    statement = (
        every(memory_items, memory_items.c.seq, *_TEXT)
        .where(memory_items.c.project_id == project_id, memory_items.c.seq > after_seq)
        .order_by(memory_items.c.seq)
        .limit(limit)
    )
    return [(row[0], MemoryText(*row[1:])) for row in connection.execute(statement)]


def texts(connection: Connection, project_id: str, memory_ids: Sequence[str]) -> dict[str, MemoryText]:
    """Return the rows of these memories by id; what was deleted, or is another project's, is left out."""
    of_project = and_(memory_items.c.project_id == project_id, memory_items.c.id.in_(memory_ids))
    rows = connection.execute(every(memory_items, *_TEXT).where(of_project))
    return {row.id: MemoryText(*row) for row in rows}


def pending_among(connection: Connection, memory_ids: Sequence[str]) -> set[str]:
    """Return which of these memories have an entry."""
    return set(connection.scalars(every(vector_outbox, _OUTBOX.memory_id).where(_OUTBOX.memory_id.in_(memory_ids))))


def pending_in(connection: Connection, project_id: str, *, limit: int) -> list[str]:
    """Return up to `limit` memories of a project that have an entry."""
    pending = every(vector_outbox, _OUTBOX.memory_id).where(_OUTBOX.project_id == project_id)
    return list(connection.scalars(pending.limit(limit)))


def sizes(connection: Connection, project_id: str | None = None) -> list[ProjectSize]:
    """Return how many memories each project holds."""
    statement = every(projects, projects.c.id, projects.c.team_id, func.coalesce(project_statistics.c.memories, 0))
    statement = statement.outerjoin_from(
        projects, project_statistics, project_statistics.c.project_id == projects.c.id
    ).where(_in_project(projects.c.id, project_id))
    return [ProjectSize(*row) for row in connection.execute(statement.order_by(projects.c.id))]


def backlogs(connection: Connection, project_id: str | None = None) -> dict[str, Backlog]:
    """Return what each project with entries waits for."""
    statement = (
        select(
            _OUTBOX.project_id,
            func.count().filter(_OUTBOX.failed.is_(False)),
            func.count().filter(_OUTBOX.failed.is_(True)),
            func.count().filter(_OUTBOX.operation == "upsert"),
            func.min(_OUTBOX.enqueued_at_epoch).filter(_OUTBOX.failed.is_(False)),
        )
        .where(_in_project(_OUTBOX.project_id, project_id))
        .group_by(_OUTBOX.project_id)
    )
    return {row[0]: Backlog(*row) for row in connection.execute(statement)}


def wordless(connection: Connection, project_id: str | None = None) -> dict[str, int]:
    """Return how many memories of each project hold nothing that is embedded, and are not pending either."""
    item = memory_items.c
    texts_are_blank = and_(
        *(
            func.trim(func.coalesce(column, "")) == ""
            for column in (item.title, item.subtitle, item.narrative, item.text)
        ),
        cast(item.facts, Text).in_(("[]", "")),
    )
    is_pending = select(_OUTBOX.memory_id).where(_OUTBOX.memory_id == item.id).exists()
    statement = every(memory_items, item.project_id, func.count()).where(
        texts_are_blank, ~is_pending, _in_project(item.project_id, project_id)
    )
    return {row[0]: row[1] for row in connection.execute(statement.group_by(item.project_id))}


def is_behind(connection: Connection, project_ids: Sequence[str], *, before_ms: int) -> bool:
    """Say whether an entry of these projects has been pending since before that time."""
    late = every(vector_outbox, _OUTBOX.memory_id).where(
        _OUTBOX.project_id.in_(project_ids), _OUTBOX.failed.is_(False), _OUTBOX.enqueued_at_epoch < before_ms
    )
    return connection.execute(late.limit(1)).first() is not None


def failures(connection: Connection, project_id: str | None, *, limit: int) -> list[FailedEntry]:
    """Return entries that were set aside."""
    statement = every(vector_outbox, *columns(vector_outbox, FailedEntry)).where(
        _OUTBOX.failed.is_(True), _in_project(_OUTBOX.project_id, project_id)
    )
    return [FailedEntry(*row) for row in connection.execute(statement.order_by(_OUTBOX.memory_id).limit(limit))]


def settle_project(connection: Connection, project_id: str, *, limit: int) -> int:
    """Delete up to `limit` entries that delete memories of a project whose collection was dropped; return how many."""
    some = select(_OUTBOX.memory_id).where(_OUTBOX.project_id == project_id, _OUTBOX.operation == "delete").limit(limit)
    found = connection.scalars(some.with_for_update(skip_locked=True)).all()
    return connection.execute(delete(vector_outbox).where(_OUTBOX.memory_id.in_(found))).rowcount


def _in_project(column: ColumnElement[str], project_id: str | None) -> ColumnElement[bool]:
    return column.is_not(None) if project_id is None else column == project_id
