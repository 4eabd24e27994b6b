"""Requests of a minute, counted for all replicas by Redis or Valkey: then the database is not asked for them.

Litestar's store for Redis reads and sets, and two replicas that do so at once lose counts: INCRBY does not.
"""

from collections.abc import Sequence
from typing import Final

from app.services.limits import Counted

_TIMEOUT_SECONDS: Final = 1.0
_KEPT_SECONDS: Final = 120
"""The minute that runs and the one before."""


class NotCounted(Exception):
    """Redis does not answer, or not as it should."""


class SharedCounts:
    """Totals of all replicas. Belongs to the event loop."""

    def __init__(self, url: str) -> None:
        """Connect lazily to `url`: redis://, rediss:// or unix://."""
        # 90 ms that nobody without Redis should wait for
        from redis.asyncio import Redis  # noqa: PLC0415
        from redis.asyncio.retry import Retry  # noqa: PLC0415
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.exceptions import RedisError  # noqa: PLC0415

        self._failures = (RedisError, OSError)
        self._redis = Redis.from_url(
            url,
            socket_timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=_TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 1),  # a connection that was closed while it lay idle
        )

    async def add(self, counts: Sequence[Counted]) -> dict[Counted, int]:
        """Add counts in one round trip; return the totals. Raises NotCounted."""
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for counted in counts:
                    name = f"cmem:requests:{counted.key_id}:{counted.period}"
                    pipeline.incrby(name, counted.requests)
                    pipeline.expire(name, _KEPT_SECONDS)
                replies = await pipeline.execute()
        except self._failures as cause:
            raise NotCounted(f"{type(cause).__name__}: {cause}") from cause
        return dict(zip(counts, replies[::2], strict=True))

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()
