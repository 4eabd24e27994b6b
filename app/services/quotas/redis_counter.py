"""Requests per minute, counted across replicas in Redis or Valkey instead of the database.

Each process writes its own total into its own hash field and sums up all fields, so that repeating a command never
counts a request twice. Litestar's Redis store only has get and set: concurrent processes would lose counts.
"""

from collections.abc import Sequence
from typing import Final

from app.clock import new_id
from app.services.quotas.rate_limit import RequestCount

_TIMEOUT_SECONDS: Final = 1.0
_KEPT_SECONDS: Final = 120
"""The current minute and the previous one."""


class RedisUnavailable(Exception):
    """Redis did not respond, or responded with an error."""


class RedisCounter:
    """Request totals of all replicas. Owned by the event loop."""

    def __init__(self, url: str) -> None:
        """Connect lazily to `url`: redis://, rediss:// or unix://."""
        # imported here: costs 90 ms at start-up, also for servers without Redis
        from redis.asyncio import Redis  # noqa: PLC0415
        from redis.asyncio.retry import Retry  # noqa: PLC0415
        from redis.backoff import NoBackoff  # noqa: PLC0415
        from redis.exceptions import ConnectionError as RedisConnectionError  # noqa: PLC0415
        from redis.exceptions import RedisError  # noqa: PLC0415

        self._failures = (RedisError, OSError)
        self._redis = Redis.from_url(
            url,
            socket_timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=_TIMEOUT_SECONDS,
            retry=Retry(
                NoBackoff(), 1, supported_errors=(RedisConnectionError,)
            ),  # the server may have closed it while idle
        )
        self._process = new_id()
        self._reported: dict[str, RequestCount] = {}
        """By key: the current period, and the requests of this process that Redis already has."""

    async def add(self, counts: Sequence[RequestCount]) -> dict[RequestCount, int]:
        """Add counts in one round trip; return the totals of all processes. Raises NotCounted."""
        own = [count._replace(requests=count.requests + self._already_reported(count)) for count in counts]
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for count in own:
                    name = f"cmem:requests:{count.key_id}:{count.period}"
                    pipeline.hset(name, self._process, str(count.requests))
                    pipeline.expire(name, _KEPT_SECONDS)
                    pipeline.hvals(name)
                replies = await pipeline.execute()
        except self._failures as cause:
            raise RedisUnavailable(f"{type(cause).__name__}: {cause}") from cause
        self._reported.update({count.key_id: count for count in own})
        return {count: sum(map(int, values)) for count, values in zip(counts, replies[2::3], strict=True)}

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    def _already_reported(self, count: RequestCount) -> int:
        reported = self._reported.get(count.key_id)
        return reported.requests if reported is not None and reported.period == count.period else 0
