"""Defence against guessed credentials: bounds the slow hash checks, and slows down peers that keep failing.

Each process counts failures on its own.
"""

import ipaddress
import time
from collections import OrderedDict
from typing import Final, Generic, TypeVar

from app.clock import now_ms

T = TypeVar("T")

_MINUTE_MS: Final = 60_000
_MAX_ENTRIES: Final = 10_000


def peer_of(host: str) -> str:
    """Return the address that failures are counted under: an IPv4 address, or the /64 network of an IPv6 customer."""
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        return host
    if isinstance(address, ipaddress.IPv6Address):
        return str(address.ipv4_mapped or ipaddress.ip_network((address, 64), strict=False))
    return str(address)


class _BoundedDict(OrderedDict[str, T], Generic[T]):
    """A mapping that evicts its oldest entries, so that unauthenticated clients cannot exhaust memory."""

    def put(self, name: str, value: T) -> None:
        """Set an entry as the newest."""
        self[name] = value
        self.move_to_end(name)
        while len(self) > _MAX_ENTRIES:
            self.popitem(last=False)


class LoginThrottle:
    """Limits the failed checks per minute, for each public id and each peer."""

    def __init__(self, *, max_failures_per_minute: int) -> None:
        """Allow `max_failures_per_minute` under each name."""
        self._max_failures_per_minute = max_failures_per_minute
        self._failures: _BoundedDict[tuple[int, int]] = _BoundedDict()

    def allows(self, name: str) -> bool:
        """Return whether another check may be made under this name."""
        minute, count = self._failures.get(name, (0, 0))
        return minute != now_ms() // _MINUTE_MS or count < self._max_failures_per_minute

    def count(self, name: str) -> None:
        """Count a failure."""
        now = now_ms() // _MINUTE_MS
        minute, count = self._failures.get(name, (now, 0))
        self._failures.put(name, (now, count + 1 if minute == now else 1))


class LeakyBucket:
    """Delays the refusals of a peer whose credentials are refused over and over; other peers are not affected.

    A burst is answered immediately; beyond it, refusals drain at `per_second`, each delayed by `max_delay_seconds` at
    most.
    """

    def __init__(self, *, per_second: float, burst: int, max_delay_seconds: float) -> None:
        """Start empty."""
        self._interval_seconds = 1.0 / per_second
        self._burst_seconds = burst / per_second
        self._max_delay_seconds = max_delay_seconds
        self._next_slot: _BoundedDict[float] = _BoundedDict()

    def delay_seconds(self, peer: str) -> float:
        """Count a refusal of this peer; return how long to delay it."""
        now = time.monotonic()
        slot = max(self._next_slot.get(peer, 0.0), now - self._burst_seconds) + self._interval_seconds
        slot = min(slot, now + self._max_delay_seconds)
        self._next_slot.put(peer, slot)
        return max(0.0, slot - now)
