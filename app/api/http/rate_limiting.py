"""The rate limit: requests per minute and API key, counted in the database or, across replicas, in Redis.

Owned by the event loop, so nothing here needs a lock.
"""

import time
from typing import Final

import structlog
from litestar.types import Message, Scope

from app.errors import RateLimited
from app.services.quotas import rate_limit
from app.services.quotas.rate_limit import Quota
from app.services.quotas.redis_counter import RedisCounter

_log = structlog.get_logger(__name__)

_RETRY_REDIS_AFTER_SECONDS: Final = 1.0
_STATE_KEY: Final = "rate_limit"
_HEADERS: Final = (b"x-ratelimit-limit", b"x-ratelimit-remaining", b"x-ratelimit-reset")


class RateLimiter:
    """Limits the requests per minute of each API key."""

    def __init__(self, per_minute: int, redis: RedisCounter | None = None) -> None:
        """`redis` counts for all replicas; without it the database does, see request_recorder."""
        self.quota = Quota(per_minute, rate_limit.minute)
        self._redis = redis
        self._redis_retry_at = 0.0

    @property
    def uses_redis(self) -> bool:
        """Whether Redis counts, instead of the database."""
        return self._redis is not None

    @property
    def is_paused(self) -> bool:
        """Whether Redis failed a moment ago: until the next attempt, requests do not wait for it."""
        return time.monotonic() < self._redis_retry_at

    def admit(self, key_id: str, scope: Scope) -> None:
        """Count a request, and note the rate limit headers of its reply. Raises RateLimited."""
        remaining = self.quota.remaining(key_id)
        seconds = rate_limit.seconds_left_in_minute()
        scope["state"][_STATE_KEY] = (self.quota.limit, max(0, remaining - 1), seconds)
        if remaining == 0:
            text = f"Rate limit exceeded: {self.quota.limit} requests per minute."
            raise RateLimited(text, retry_after_seconds=seconds)
        self.quota.count(key_id)

    async def sync_with_redis(self) -> None:
        """Exchange counts with the other replicas. After a failure, the same counts are sent with the next attempt."""
        if self._redis is None or not (unsynced := self.quota.unsynced()):
            return
        try:
            self.quota.apply_totals(await self._redis.add(unsynced))
        except Exception as cause:  # noqa: BLE001 - limits fail open, whatever the reason
            self._redis_retry_at = time.monotonic() + _RETRY_REDIS_AFTER_SECONDS
            _log.warning("limits_not_shared", reason=str(cause))

    async def close(self) -> None:
        """Close the connection to Redis."""
        if self._redis is not None:
            await self._redis.close()


async def add_rate_headers(message: Message, scope: Scope) -> None:
    """Add the rate limit headers to a reply, also to a refusal: a hook that runs before each message is sent."""
    if message["type"] != "http.response.start" or (values := scope["state"].get(_STATE_KEY)) is None:
        return
    added = [(name, str(value).encode()) for name, value in zip(_HEADERS, values, strict=True)]
    message["headers"] = [*message["headers"], *added]
