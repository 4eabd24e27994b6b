"""The vector mirror's outbox, and the rows it mirrors: what has changed and is not in the index yet.

Only triggers write entries, one per memory; this module claims, acknowledges, postpones and fails them. The index
belongs to the server, so these statements see all teams. Any number of processes drain the outbox. None waits for a
client or another drainer, because locked rows are skipped; an entry that stays claimed that way is claimed again.
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from sqlalchemy import ColumnElement, Connection, Text, and_, cast, delete, func, literal, or_, select, update
from sqlalchemy import false as sql_false

from app.store.models import memory_items, project_statistics, projects, vector_outbox
from app.store.records import Record, columns
from app.store.scope import unscoped
from app.store.upsert import upsert

Operation = Literal["upsert", "delete"]

ENQUEUE_ROWS: Final = 2_000
"""Rows enqueued per transaction, so that the write lock is held well under 0.2 s."""


class MemoryText(Record, frozen=True):
    """The fields of a memory that are embedded, or become metadata of its documents."""

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


class OutboxEntry(Record, frozen=True):
    """A memory to be mirrored, as it was when it was claimed."""

    memory_id: str
    team_id: str
    project_id: str
    operation: Operation
    version: int
    attempts: int


class Backlog(Record, frozen=True):
    """The pending entries of a project; `upserts` counts those whose memory exists, including failed ones."""

    project_id: str
    pending: int
    failed: int
    upserts: int
    oldest_enqueued_at_epoch: int | None


class FailedEntry(Record, frozen=True):
    """An entry that failed for good, and why."""

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


def claim(connection: Connection, owner: str, *, now_ms: int, lease_ms: int, limit: int) -> list[OutboxEntry]:
    """Claim up to `limit` due entries for this owner; nobody else can claim them until the lease ends.

    Entries that the owner already holds come from an earlier batch that it could not complete.
    """
    due = (
        unscoped(vector_outbox, *columns(vector_outbox, OutboxEntry))
        .where(_is_due(owner, now_ms))
        .order_by(_OUTBOX.next_attempt_at_epoch, _OUTBOX.enqueued_at_epoch)
        .limit(limit)
        .with_for_update(skip_locked=True)  # SQLite has one writer and needs no lock
    )
    entries = [OutboxEntry(*row) for row in connection.execute(due)]
    claimed = update(vector_outbox).where(_OUTBOX.memory_id.in_([entry.memory_id for entry in entries]))
    connection.execute(claimed.values(claimed_by=owner, claimed_until_epoch=now_ms + lease_ms))
    return entries


def has_due(connection: Connection, owner: str, *, now_ms: int) -> bool:
    """Say whether this owner could claim an entry."""
    due = unscoped(vector_outbox, _OUTBOX.memory_id).where(_is_due(owner, now_ms))
    return connection.execute(due.limit(1)).first() is not None


def _is_due(owner: str, now_ms: int) -> ColumnElement[bool]:
    is_free = or_(_OUTBOX.claimed_until_epoch <= now_ms, _OUTBOX.claimed_by == owner)
    return and_(_OUTBOX.failed.is_(False), _OUTBOX.next_attempt_at_epoch <= now_ms, is_free)


def still_claimed(
    connection: Connection, owner: str, entries: Iterable[OutboxEntry], *, until_ms: int
) -> list[OutboxEntry]:
    """Return the entries that have not changed since, and whose claim lasts at least until `until_ms`."""
    by_id = {entry.memory_id: entry for entry in entries}
    kept = unscoped(vector_outbox, _OUTBOX.memory_id, _OUTBOX.version).where(
        _OUTBOX.memory_id.in_(list(by_id)), _OUTBOX.claimed_by == owner, _OUTBOX.claimed_until_epoch >= until_ms
    )
    return [by_id[memory_id] for memory_id, version in connection.execute(kept) if by_id[memory_id].version == version]


def acknowledge(connection: Connection, owner: str, entries: Sequence[OutboxEntry]) -> None:
    """Delete mirrored entries; one that changed meanwhile stays pending, for its new version."""
    held = _lock(connection, _OUTBOX.claimed_by == owner, _OUTBOX.memory_id.in_([one.memory_id for one in entries]))
    unchanged = [entry.memory_id for entry in entries if held.get(entry.memory_id) == entry.version]
    if unchanged:
        connection.execute(delete(vector_outbox).where(_OUTBOX.memory_id.in_(unchanged)))


def release(connection: Connection, owner: str) -> None:
    """Release all claims of this owner."""
    _release(connection, _OUTBOX.claimed_by == owner)


def release_all(connection: Connection, owner_prefix: str) -> None:
    """Release all claims of owners with this prefix, which must be dead."""
    _release(connection, _OUTBOX.claimed_by.startswith(owner_prefix, autoescape=True))


def postpone(connection: Connection, owner: str, entries: Sequence[OutboxEntry], *, until_ms: int) -> None:
    """Release claims that cannot be served yet; this does not count as a failed attempt."""
    among = _OUTBOX.memory_id.in_([entry.memory_id for entry in entries])
    _release(connection, _OUTBOX.claimed_by == owner, among, next_attempt_at_epoch=until_ms)


def requeue_claimed(connection: Connection, project_id: str) -> None:
    """Have the claimed entries of a project mirrored again: a drainer may be writing to a collection just deleted."""
    claimed = and_(_OUTBOX.project_id == project_id, _OUTBOX.claimed_by.is_not(None))
    connection.execute(update(vector_outbox).where(claimed).values(version=_OUTBOX.version + 1))


def _release(connection: Connection, *of_claims: ColumnElement[bool], **values: int) -> None:
    held = _lock(connection, *of_claims)
    if held:
        released = update(vector_outbox).where(_OUTBOX.memory_id.in_(list(held)))
        connection.execute(released.values(claimed_by=None, claimed_until_epoch=0, **values))


def _lock(connection: Connection, *of_claims: ColumnElement[bool]) -> dict[str, int]:
    """Lock claimed entries and return their versions by memory; those locked by others are left out."""
    held = (
        unscoped(vector_outbox, _OUTBOX.memory_id, _OUTBOX.version).where(*of_claims).with_for_update(skip_locked=True)
    )
    return {row.memory_id: row.version for row in connection.execute(held)}


def defer(connection: Connection, owner: str, entry: OutboxEntry, *, error: str, retry_at_ms: int | None) -> None:
    """Record a failed attempt: it is retried at `retry_at_ms`, or has failed for good when that is None."""
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
    """Make failed entries pending again; return how many."""
    failed = update(vector_outbox).where(_OUTBOX.failed.is_(True), _in_project(_OUTBOX.project_id, project_id))
    return connection.execute(failed.values(failed=sql_false(), attempts=0, next_attempt_at_epoch=0)).rowcount


def enqueue(connection: Connection, entries: Sequence[OutboxEntry], *, now_ms: int) -> None:
    """Enqueue memories to be mirrored (again), after what clients have changed; pending entries stay unchanged."""
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
    """Enqueue the next ENQUEUE_ROWS memories of a project; return the last key, or None at the end."""
    in_project = memory_items.c.project_id == project_id
    keys = unscoped(memory_items, memory_items.c.seq).where(in_project, memory_items.c.seq > after_seq)
    seqs = connection.scalars(keys.order_by(memory_items.c.seq).limit(ENQUEUE_ROWS)).all()
    if not seqs:
        return None
    is_pending = select(_OUTBOX.memory_id).where(_OUTBOX.memory_id == memory_items.c.id).exists()
    slice_ = unscoped(
        memory_items,
        *(memory_items.c[name] for name in ("id", "team_id", "project_id", "version")),
        literal("upsert"),
        literal(now_ms),
        literal(now_ms),
    ).where(
        memory_items.c.project_id == project_id,
        memory_items.c.seq > after_seq,
        memory_items.c.seq <= seqs[-1],
        ~is_pending,
    )
    names = ["memory_id", "team_id", "project_id", "version", "operation", "enqueued_at_epoch", "next_attempt_at_epoch"]
    connection.execute(upsert(vector_outbox).from_select(names, slice_).on_conflict_do_nothing())
    return int(seqs[-1])


def page(connection: Connection, project_id: str, *, after_seq: int, limit: int) -> list[tuple[int, MemoryText]]:
    """Return a project's memories after `after_seq` with their keys, in key order."""
    statement = (
        unscoped(memory_items, memory_items.c.seq, *_TEXT)
        .where(memory_items.c.project_id == project_id, memory_items.c.seq > after_seq)
        .order_by(memory_items.c.seq)
        .limit(limit)
    )
    return [(row[0], MemoryText(*row[1:])) for row in connection.execute(statement)]


def texts(connection: Connection, project_id: str, memory_ids: Sequence[str]) -> dict[str, MemoryText]:
    """Return these memories by id; those that were deleted or are in another project are left out."""
    of_project = and_(memory_items.c.project_id == project_id, memory_items.c.id.in_(memory_ids))
    rows = connection.execute(unscoped(memory_items, *_TEXT).where(of_project))
    return {row.id: MemoryText(*row) for row in rows}


def pending_among(connection: Connection, memory_ids: Sequence[str]) -> set[str]:
    """Return which of these memories have an entry."""
    return set(connection.scalars(unscoped(vector_outbox, _OUTBOX.memory_id).where(_OUTBOX.memory_id.in_(memory_ids))))


def pending_in(connection: Connection, project_id: str, *, limit: int) -> list[str]:
    """Return up to `limit` memories of a project that have an entry."""
    pending = unscoped(vector_outbox, _OUTBOX.memory_id).where(_OUTBOX.project_id == project_id)
    return list(connection.scalars(pending.limit(limit)))


def sizes(connection: Connection, project_id: str | None = None) -> list[ProjectSize]:
    """Return how many memories each project holds."""
    statement = unscoped(projects, projects.c.id, projects.c.team_id, func.coalesce(project_statistics.c.memories, 0))
    statement = statement.outerjoin_from(
        projects, project_statistics, project_statistics.c.project_id == projects.c.id
    ).where(_in_project(projects.c.id, project_id))
    return [ProjectSize(*row) for row in connection.execute(statement.order_by(projects.c.id))]


def backlogs(connection: Connection, project_id: str | None = None) -> dict[str, Backlog]:
    """Return the backlog of each project that has entries."""
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


def count_textless(connection: Connection, project_id: str | None = None) -> dict[str, int]:
    """Return the number of memories per project that have no text to embed and are not pending."""
    item = memory_items.c
    is_blank = and_(
        *(
            func.trim(func.coalesce(column, "")) == ""
            for column in (item.title, item.subtitle, item.narrative, item.text)
        ),
        cast(item.facts, Text).in_(("[]", "")),
    )
    is_pending = select(_OUTBOX.memory_id).where(_OUTBOX.memory_id == item.id).exists()
    statement = unscoped(memory_items, item.project_id, func.count()).where(
        is_blank, ~is_pending, _in_project(item.project_id, project_id)
    )
    return {row[0]: row[1] for row in connection.execute(statement.group_by(item.project_id))}


def is_lagging(connection: Connection, project_ids: Sequence[str], *, before_ms: int) -> bool:
    """Say whether an entry of these projects has been pending since before that time."""
    late = unscoped(vector_outbox, _OUTBOX.memory_id).where(
        _OUTBOX.project_id.in_(project_ids), _OUTBOX.failed.is_(False), _OUTBOX.enqueued_at_epoch < before_ms
    )
    return connection.execute(late.limit(1)).first() is not None


def failures(connection: Connection, project_id: str | None, *, limit: int) -> list[FailedEntry]:
    """Return entries that failed for good."""
    statement = unscoped(vector_outbox, *columns(vector_outbox, FailedEntry)).where(
        _OUTBOX.failed.is_(True), _in_project(_OUTBOX.project_id, project_id)
    )
    return [FailedEntry(*row) for row in connection.execute(statement.order_by(_OUTBOX.memory_id).limit(limit))]


def acknowledge_deletes(connection: Connection, project_id: str, *, limit: int) -> int:
    """Drop up to `limit` pending deletions of a project whose collection was deleted; return how many."""
    batch = (
        select(_OUTBOX.memory_id).where(_OUTBOX.project_id == project_id, _OUTBOX.operation == "delete").limit(limit)
    )
    memory_ids = connection.scalars(batch.with_for_update(skip_locked=True)).all()
    return connection.execute(delete(vector_outbox).where(_OUTBOX.memory_id.in_(memory_ids))).rowcount


def _in_project(column: ColumnElement[str], project_id: str | None) -> ColumnElement[bool]:
    return column.is_not(None) if project_id is None else column == project_id
