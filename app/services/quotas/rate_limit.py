"""Limits: requests of a key in a minute or a month, wrong secrets of a key or a peer, refusals of a peer.

Requests are counted in memory and stored now and then, so that no read takes the write lock. A process admits at most
`Allowance.share` requests of a key that the others do not know of; so all processes together admit at most
limit + processes x share. Failures are counted by each process for itself.
"""

import ipaddress
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Generic, Literal, NamedTuple, TypeVar

from sqlalchemy import Connection, delete

from app.clock import now_ms
from app.store.models import request_counters
from app.store.upsert import upsert

T = TypeVar("T")

Period = Literal["minute", "month"]

MINUTE_MS: Final = 60_000
_KEPT_MS: Final[int] = 62 * 86_400_000  # the month that runs and the one before
_REMEMBERED: Final = 10_000


def month(at_ms: int) -> str:
    """Return the calendar month of a time, UTC: 2026-11."""
    return minute(at_ms)[:7]


def minute(at_ms: int) -> str:
    """Return the minute of a time, UTC: 2026-11-30T12:34."""
    return _minute_text(at_ms // MINUTE_MS)


@lru_cache(maxsize=8)
def _minute_text(minutes: int) -> str:
    return datetime.fromtimestamp(minutes * 60, UTC).strftime("%Y-%m-%dT%H:%M")


class Counted(NamedTuple):
    """Requests of a key in a period that wait to be stored; zero of them asks what the others stored."""

    key_id: str
    period: str
    requests: int


@dataclass(slots=True)
class _Counter:
    """Requests of one key in one period."""

    period: str
    stored: int = 0
    pending: int = 0
    is_known: bool = False


@dataclass(slots=True)
class Allowance:
    """At most `limit` requests of a key in a period. Belongs to the event loop; only store() runs elsewhere."""

    limit: int
    period_of: Callable[[int], str]
    _counters: dict[str, _Counter] = field(default_factory=dict)

    @property
    def share(self) -> int:
        """How many requests of a key one process admits before it has told the others."""
        return max(1, self.limit // 10)

    def remaining(self, key_id: str) -> int:
        """Return how many requests are left to a key; zero when none are."""
        counter = self._current(key_id)
        return max(0, self.limit - counter.stored - counter.pending)

    def count(self, key_id: str) -> None:
        """Count one request."""
        self._current(key_id).pending += 1

    def wants_storing(self, key_id: str) -> bool:
        """Say whether it is time to store: half the share is used up, or nobody has asked about this key yet."""
        counter = self._current(key_id)
        return not counter.is_known or counter.pending * 2 >= self.share

    def must_store(self, key_id: str) -> bool:
        """Say whether the share is used up: the next request has to wait until this was stored."""
        return self._current(key_id).pending >= self.share

    def waiting(self) -> list[Counted]:
        """Return what is to be stored, and forget the periods that are over."""
        now = self.period_of(now_ms())
        over = [key for key, counter in self._counters.items() if counter.period != now and not counter.pending]
        for key_id in over:
            del self._counters[key_id]
        return [
            Counted(key_id, counter.period, counter.pending)
            for key_id, counter in self._counters.items()
            if counter.pending or not counter.is_known
        ]

    def settle(self, stored: dict[Counted, int]) -> None:
        """Take over what whoever counts for all says."""
        for counted, total in stored.items():
            counter = self._counters.get(counted.key_id)
            if counter is not None and counter.period == counted.period:
                counter.stored = total
                counter.pending -= counted.requests
                counter.is_known = True

    def _current(self, key_id: str) -> _Counter:
        period = self.period_of(now_ms())
        counter = self._counters.get(key_id)
        if counter is None or counter.period != period:
            counter = self._counters[key_id] = _Counter(period)
        return counter


def store(connection: Connection, counts: Iterable[Counted]) -> dict[Counted, int]:
    """Add counts to what is stored; return the totals of all processes."""
    totals = {}
    for counted in counts:
        statement = upsert(request_counters).values(
            key_id=counted.key_id, period=counted.period, count=counted.requests, updated_at_epoch=now_ms()
        )
        added = {
            "count": request_counters.c.count + statement.excluded.count,
            "updated_at_epoch": statement.excluded.updated_at_epoch,
        }
        statement = statement.on_conflict_do_update(index_elements=["key_id", "period"], set_=added)
        totals[counted] = connection.scalar(statement.returning(request_counters.c.count)) or 0
    return totals


def forget_old(connection: Connection) -> None:
    """Delete the counts of periods that are long over."""
    connection.execute(delete(request_counters).where(request_counters.c.updated_at_epoch < now_ms() - _KEPT_MS))


def seconds_left_in_minute() -> int:
    """Return the whole seconds until the next minute begins, at least one."""
    return max(1, -(-(MINUTE_MS - now_ms() % MINUTE_MS) // 1000))


def peer_of(host: str) -> str:
    """Return who a peer counts as: an IPv4 address, or the /64 that one IPv6 customer has to himself."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class _Remembered(OrderedDict[str, T], Generic[T]):
    """A mapping that forgets its oldest entries, so that strangers cannot fill the memory."""

    def keep(self, name: str, value: T) -> None:
        """Set an entry as the newest."""
        self[name] = value
        self.move_to_end(name)
        while len(self) > _REMEMBERED:
            self.popitem(last=False)


class FailureLimit:
    """Bounds the slow checks of wrong secrets: so many a minute for each public id and each peer."""

    def __init__(self, *, per_name: int) -> None:
        """Allow `per_name` failures a minute under each name."""
        self._per_name = per_name
        self._failures: _Remembered[tuple[int, int]] = _Remembered()

    def admits(self, name: str) -> bool:
        """Say whether another check may be made under this name."""
        minute, count = self._failures.get(name, (0, 0))
        return minute != now_ms() // MINUTE_MS or count < self._per_name

    def count(self, name: str) -> None:
        """Note a failure."""
        now = now_ms() // MINUTE_MS
        minute, count = self._failures.get(name, (now, 0))
        self._failures.keep(name, (now, count + 1 if minute == now else 1))


class Pace:
    """Slows a peer whose credentials are refused again and again; nobody else is slowed.

    A leaky bucket: a burst is answered at once, what comes faster than `per_second` afterwards waits for its turn.
    """

    def __init__(self, *, per_second: float, burst: int, longest_wait_seconds: float) -> None:
        """Start with nobody slowed."""
        self._interval = 1.0 / per_second
        self._burst_seconds = burst / per_second
        self._longest_wait_seconds = longest_wait_seconds
        self._next_turn: _Remembered[float] = _Remembered()

    def wait_seconds(self, peer: str) -> float:
        """Return how long the refusal of this peer has to wait; counts it."""
        now = time.monotonic()
        turn = max(self._next_turn.get(peer, 0.0), now - self._burst_seconds) + self._interval
        turn = min(turn, now + self._longest_wait_seconds)
        self._next_turn.keep(peer, turn)
        return max(0.0, turn - now)
