"""The audit log: who did what to which resource. Ids only, never any content.

Completed actions are written in the transaction of their effect. Refused requests, and reads if they are audited, are
buffered in memory and written in batches, so that a client without write access cannot cause unbounded writes.
"""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from sqlalchemy import Connection

from app.caller import Caller
from app.clock import new_id, now_ms
from app.services.shared import paging
from app.store.models import audit_log
from app.store.prepared import prepare_insert
from app.store.records import AuditEntry, columns
from app.store.scope import owned

Outcome = Literal["done", "refused"]

CREDENTIAL_REFUSED: Final = "credential.refuse"
_REFUSED_CREDENTIALS_EVERY_MS: Final = 60_000

_COLUMNS: Final = columns(audit_log, AuditEntry)
_INSERT: Final = prepare_insert(audit_log, "seq")


class AuditEvent(NamedTuple):
    """An action: `action` is noun and verb (`memory.create`), `target` is the resource type and its id."""

    team_id: str | None
    project_id: str | None
    actor_id: str | None
    user_id: str | None
    action: str
    target: tuple[str, str | None]
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class AuditFilters:
    """Which entries a list returns; times are epoch ms, half open: [after, before)."""

    project_id: str | None = None
    action: str | None = None
    actor_id: str | None = None
    target_id: str | None = None
    after: int | None = None
    before: int | None = None


def audit_event(
    caller: Caller,
    action: str,
    target: tuple[str, str | None],
    *,
    project_id: str | None = None,
    outcome: Outcome = "done",
) -> AuditEvent:
    """Return the event of something the caller did, or tried to do."""
    project_id = project_id or caller.project_id
    return AuditEvent(caller.team_id, project_id, caller.key_id, caller.user_id, action, target, outcome)


def record(
    connection: Connection,
    caller: Caller,
    action: str,
    *,
    target: tuple[str, str | None],
    project_id: str | None = None,
    count: int = 1,
) -> None:
    """Write one entry in the transaction of the effect."""
    event = audit_event(caller, action, target, project_id=project_id)
    _insert(connection, event, count=count, request_id=caller.request_id, at_epoch_ms=now_ms())


def list_page(
    connection: Connection, caller: Caller, filters: AuditFilters, *, limit: int, cursor: str | None
) -> paging.Page[AuditEntry]:
    """Return the entries of the caller's team (or project), newest first.

    A caller without a team gets the entries that belong to no team: those about the server itself.
    """
    log = audit_log.c
    clauses = (
        None if filters.project_id is None else log.project_id == filters.project_id,
        None if filters.action is None else log.action == filters.action,
        None if filters.actor_id is None else log.actor_id == filters.actor_id,
        None if filters.target_id is None else log.target_id == filters.target_id,
        None if filters.after is None else log.created_at_epoch >= filters.after,
        None if filters.before is None else log.created_at_epoch < filters.before,
    )
    return paging.page(
        connection,
        owned(audit_log, caller, *_COLUMNS).where(*(clause for clause in clauses if clause is not None)),
        AuditEntry,
        (log.created_at_epoch, log.seq),
        limit=limit,
        cursor=cursor,
        bound_to=paging.binding(caller, ["audit", filters]),
    )


@dataclass(slots=True)
class _Occurrences:
    """How often an event occurred since the last batch; request id and time are those of the first occurrence."""

    request_id: str
    at_epoch_ms: int
    count: int = 0


AuditBatch = dict[tuple[AuditEvent, str | None], _Occurrences]
"""Buffered events; the second part of a key is the request id where an event gets one entry per request."""


class AuditBuffer:
    """Events waiting for the next batch. Owned by the event loop; only store_batch() runs in another thread.

    A batch holds at most `capacity` detailed entries. Beyond that, events are counted per actor only, and beyond twice
    the capacity without an actor.
    """

    def __init__(self, *, capacity: int = 500) -> None:
        """Start empty."""
        self._capacity = capacity
        self._events: AuditBatch = {}
        self._refused_at_epoch_ms: dict[str | None, int] = {}

    def add(self, event: AuditEvent, request_id: str, *, separate: bool = False) -> None:
        """Count an event; `separate` keeps one entry per request instead of one per batch."""
        entry = (event, request_id if separate else None)
        if entry not in self._events and len(self._events) >= self._capacity:
            entry = (_without_details(event, keep_team=len(self._events) < 2 * self._capacity), None)
        occurrences = self._events.setdefault(entry, _Occurrences(request_id, now_ms()))
        occurrences.count += 1

    def drain(self) -> AuditBatch:
        """Return and remove the buffered events. Refusals of one credential are returned at most once a minute."""
        since = now_ms() - _REFUSED_CREDENTIALS_EVERY_MS
        self._refused_at_epoch_ms = {actor: at for actor, at in self._refused_at_epoch_ms.items() if at > since}
        held_back = {entry: each for entry, each in self._events.items() if self._is_held_back(entry[0])}
        drained = {entry: each for entry, each in self._events.items() if entry not in held_back}
        for event, _ in drained:
            if event.action == CREDENTIAL_REFUSED:
                self._refused_at_epoch_ms[event.actor_id] = now_ms()
        self._events = held_back
        return drained

    def requeue(self, batch: AuditBatch) -> None:
        """Put a batch that could not be written back into the buffer."""
        for entry, occurrences in batch.items():
            if (later := self._events.get(entry)) is not None:
                occurrences.count += later.count
            self._events[entry] = occurrences

    def _is_held_back(self, event: AuditEvent) -> bool:
        return event.action == CREDENTIAL_REFUSED and event.actor_id in self._refused_at_epoch_ms


def store_batch(connection: Connection, batch: AuditBatch) -> None:
    """Write a batch."""
    for (event, _), occurrences in batch.items():
        _insert(
            connection,
            event,
            count=occurrences.count,
            request_id=occurrences.request_id,
            at_epoch_ms=occurrences.at_epoch_ms,
        )


def _without_details(event: AuditEvent, *, keep_team: bool) -> AuditEvent:
    """Return an event reduced to its actor, or to its outcome alone when there are too many of those as well."""
    if keep_team:
        return event._replace(target=("overflow", None), project_id=None)
    return AuditEvent(None, None, None, None, "overflow", ("overflow", None), event.outcome)


def _insert(connection: Connection, event: AuditEvent, *, count: int, request_id: str | None, at_epoch_ms: int) -> None:
    target_type, target_id = event.target
    row = {
        **event._asdict(),
        "id": new_id(),
        "target_type": target_type,
        "target_id": target_id,
        "count": count,
        "request_id": request_id,
        "created_at_epoch": at_epoch_ms,
    }
    _INSERT.run(connection, row)
