"""Request limits per key: so many per minute or per month, across all processes.

Requests are counted in memory and stored periodically, so that no read takes the write lock. A process admits at most
`Quota.share` requests of a key before the other processes know of them; so all processes together admit at most
limit + processes x share.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final, Literal, NamedTuple

from sqlalchemy import Connection, delete

from app.clock import now_ms
from app.store.models import request_counters
from app.store.upsert import upsert

Period = Literal["minute", "month"]

MINUTE_MS: Final = 60_000
_KEPT_MS: Final[int] = 62 * 86_400_000  # the current month and the previous one


def month(at_ms: int) -> str:
    """Return the calendar month of a time, UTC: `2026-11`."""
    return minute(at_ms)[:7]


def minute(at_ms: int) -> str:
    """Return the minute of a time, UTC: `2026-11-30T12:34`."""
    return _minute_text(at_ms // MINUTE_MS)


@lru_cache(maxsize=8)
def _minute_text(minutes: int) -> str:
    return datetime.fromtimestamp(minutes * 60, UTC).strftime("%Y-%m-%dT%H:%M")


class RequestCount(NamedTuple):
    """Requests of a key in a period that are not stored yet; a count of zero only fetches the stored total."""

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
class Quota:
    """At most `limit` requests per key and period. Owned by the event loop; only store() runs in another thread."""

    limit: int
    period_of: Callable[[int], str]
    _counters: dict[str, _Counter] = field(default_factory=dict)

    @property
    def share(self) -> int:
        """How many requests of a key a process admits before the other processes know of them."""
        return max(1, self.limit // 10)

    def remaining(self, key_id: str) -> int:
        """Return how many requests a key has left in this period."""
        counter = self._current(key_id)
        return max(0, self.limit - counter.stored - counter.pending)

    def count(self, key_id: str) -> None:
        """Count one request."""
        self._current(key_id).pending += 1

    def should_sync(self, key_id: str) -> bool:
        """Return whether to store soon: half the share is used up, or the stored total of this key is still unknown."""
        counter = self._current(key_id)
        return not counter.is_known or counter.pending * 2 >= self.share

    def must_sync(self, key_id: str) -> bool:
        """Return whether the share is used up: the next request has to wait until the counts are stored."""
        return self._current(key_id).pending >= self.share

    def unsynced(self) -> list[RequestCount]:
        """Return the counts to store, and drop the counters of past periods."""
        now = self.period_of(now_ms())
        past = [key for key, counter in self._counters.items() if counter.period != now and not counter.pending]
        for key_id in past:
            del self._counters[key_id]
        return [
            RequestCount(key_id, counter.period, counter.pending)
            for key_id, counter in self._counters.items()
            if counter.pending or not counter.is_known
        ]

    def apply_totals(self, totals: dict[RequestCount, int]) -> None:
        """Apply the totals of all processes, as store() or the Redis counter returned them."""
        for count, total in totals.items():
            counter = self._counters.get(count.key_id)
            if counter is not None and counter.period == count.period:
                counter.stored = total
                counter.pending -= count.requests
                counter.is_known = True

    def _current(self, key_id: str) -> _Counter:
        period = self.period_of(now_ms())
        counter = self._counters.get(key_id)
        if counter is None or counter.period != period:
            counter = self._counters[key_id] = _Counter(period)
        return counter


def store(connection: Connection, counts: Iterable[RequestCount]) -> dict[RequestCount, int]:
    """Add counts to the stored ones; return the totals of all processes."""
    totals = {}
    for count in counts:
        statement = upsert(request_counters).values(
            key_id=count.key_id, period=count.period, count=count.requests, updated_at_epoch=now_ms()
        )
        added = {
            "count": request_counters.c.count + statement.excluded.count,
            "updated_at_epoch": statement.excluded.updated_at_epoch,
        }
        statement = statement.on_conflict_do_update(index_elements=["key_id", "period"], set_=added)
        totals[count] = connection.scalar(statement.returning(request_counters.c.count)) or 0
    return totals


def delete_expired(connection: Connection) -> None:
    """Delete counts older than the previous month."""
    connection.execute(delete(request_counters).where(request_counters.c.updated_at_epoch < now_ms() - _KEPT_MS))


def seconds_left_in_minute() -> int:
    """Return the whole seconds until the next minute, at least 1."""
    return max(1, -(-(MINUTE_MS - now_ms() % MINUTE_MS) // 1000))
