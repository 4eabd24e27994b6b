"""The audit log: who did what to which thing. Ids only, never a text.

What was done is written in the transaction of its effect. What was refused, and reads when they are wanted, gathers in
memory and is written in batches, so that nobody who may not write makes us write without end.
"""

from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from sqlalchemy import Connection

from app.caller import Caller
from app.clock import new_id, now_ms
from app.services.shared import paging
from app.store.models import audit_log
from app.store.prepared import inserting
from app.store.records import AuditEntry, columns
from app.store.scope import owned

Outcome = Literal["done", "refused"]

CREDENTIAL_REFUSED: Final = "credential.refuse"
_REFUSED_CREDENTIALS_EVERY_MS: Final = 60_000

_COLUMNS: Final = columns(audit_log, AuditEntry)
_INSERT: Final = inserting(audit_log, "seq")


class Deed(NamedTuple):
    """Somebody's action: `action` is noun and verb (`memory.create`), `target` the noun and its id."""

    team_id: str | None
    project_id: str | None
    actor_id: str | None
    user_id: str | None
    action: str
    target: tuple[str, str | None]
    outcome: Outcome


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """What a list of entries is cut to; times are epoch ms, half open."""

    project_id: str | None = None
    action: str | None = None
    actor_id: str | None = None
    target_id: str | None = None
    after: int | None = None
    before: int | None = None


def deed(
    caller: Caller,
    action: str,
    target: tuple[str, str | None],
    *,
    project_id: str | None = None,
    outcome: Outcome = "done",
) -> Deed:
    """Return what a caller did, or tried to do."""
    project_id = project_id or caller.project_id
    return Deed(caller.team_id, project_id, caller.key_id, caller.user_id, action, target, outcome)


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
    done = deed(caller, action, target, project_id=project_id)
    _insert(connection, done, count=count, request_id=caller.request_id, at_epoch_ms=now_ms())


def listing(
    connection: Connection, caller: Caller, filters: Filters, *, limit: int, cursor: str | None
) -> paging.Page[AuditEntry]:
    """Return the entries of the caller's team (or project), newest first.

    A caller of no team gets what belongs to none: what happened to the server itself.
    """
    log = audit_log.c
    wanted = (
        None if filters.project_id is None else log.project_id == filters.project_id,
        None if filters.action is None else log.action == filters.action,
        None if filters.actor_id is None else log.actor_id == filters.actor_id,
        None if filters.target_id is None else log.target_id == filters.target_id,
        None if filters.after is None else log.created_at_epoch >= filters.after,
        None if filters.before is None else log.created_at_epoch < filters.before,
    )
    return paging.page(
        connection,
        owned(audit_log, caller, *_COLUMNS).where(*(clause for clause in wanted if clause is not None)),
        AuditEntry,
        (log.created_at_epoch, log.seq),
        limit=limit,
        cursor=cursor,
        bound_to=paging.binding(caller, ["audit", filters]),
    )


@dataclass(slots=True)
class _Gathered:
    """How often a deed happened since the last batch; request and time are those of the first."""

    request_id: str
    at_epoch_ms: int
    count: int = 0


Batch = dict[tuple[Deed, str | None], _Gathered]
"""Deeds with what gathered of each; the second part of a key tells entries of one deed apart."""


class Gathering:
    """Deeds that wait for the next batch. Belongs to the event loop; only store() runs elsewhere.

    A batch holds at most `capacity` entries: what comes on top is counted under its actor alone, then under nobody.
    """

    def __init__(self, *, capacity: int = 500) -> None:
        """Start empty."""
        self._capacity = capacity
        self._deeds: Batch = {}
        self._refused_at_epoch_ms: dict[str | None, int] = {}

    def add(self, happened: Deed, request_id: str, *, one_by_one: bool = False) -> None:
        """Count a deed; `one_by_one` keeps an entry of its own for each request."""
        entry = (happened, request_id if one_by_one else None)
        if entry not in self._deeds and len(self._deeds) >= self._capacity:
            entry = (_without_details(happened, keep_team=len(self._deeds) < 2 * self._capacity), None)
        gathered = self._deeds.setdefault(entry, _Gathered(request_id, now_ms()))
        gathered.count += 1

    def take(self) -> Batch:
        """Return what has gathered, and start anew; refusals of one credential are returned once a minute at most."""
        since = now_ms() - _REFUSED_CREDENTIALS_EVERY_MS
        self._refused_at_epoch_ms = {who: at for who, at in self._refused_at_epoch_ms.items() if at > since}
        held_back = {entry: gathered for entry, gathered in self._deeds.items() if self._is_held_back(entry[0])}
        taken = {entry: gathered for entry, gathered in self._deeds.items() if entry not in held_back}
        for happened, _ in taken:
            if happened.action == CREDENTIAL_REFUSED:
                self._refused_at_epoch_ms[happened.actor_id] = now_ms()
        self._deeds = held_back
        return taken

    def give_back(self, batch: Batch) -> None:
        """Keep a batch that could not be written for the next one."""
        for entry, gathered in batch.items():
            if (later := self._deeds.get(entry)) is not None:
                gathered.count += later.count
            self._deeds[entry] = gathered

    def _is_held_back(self, happened: Deed) -> bool:
        return happened.action == CREDENTIAL_REFUSED and happened.actor_id in self._refused_at_epoch_ms


def store(connection: Connection, batch: Batch) -> None:
    """Write a batch."""
    for (happened, _), gathered in batch.items():
        _insert(
            connection,
            happened,
            count=gathered.count,
            request_id=gathered.request_id,
            at_epoch_ms=gathered.at_epoch_ms,
        )


def _without_details(happened: Deed, *, keep_team: bool) -> Deed:
    """Return a deed of which only who and what kind is left, or nothing at all when there are too many of those too."""
    if keep_team:
        return happened._replace(target=("overflow", None), project_id=None)
    return Deed(None, None, None, None, "overflow", ("overflow", None), happened.outcome)


def _insert(connection: Connection, done: Deed, *, count: int, request_id: str | None, at_epoch_ms: int) -> None:
    target_type, target_id = done.target
    row = {
        **done._asdict(),
        "id": new_id(),
        "target_type": target_type,
        "target_id": target_id,
        "count": count,
        "request_id": request_id,
        "created_at_epoch": at_epoch_ms,
    }
    _INSERT.run(connection, row)
