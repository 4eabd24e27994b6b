"""Requests of a minute, counted for all replicas by Redis or Valkey: then the database is not asked for them.

Each process sets what it has counted itself, and adds up what all have: however often that is sent, nothing is counted
twice. Litestar's store for Redis has no field of a process's own, and two that read and set at once lose counts.
"""

from collections.abc import Sequence
from typing import Final

from app.clock import new_id
from app.services.quotas.rate_limit import Counted

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
        from redis.exceptions import ConnectionError as Disconnected  # noqa: PLC0415
        from redis.exceptions import RedisError  # noqa: PLC0415

        self._failures = (RedisError, OSError)
        self._redis = Redis.from_url(
            url,
            socket_timeout=_TIMEOUT_SECONDS,
            socket_connect_timeout=_TIMEOUT_SECONDS,
            retry=Retry(NoBackoff(), 1, supported_errors=(Disconnected,)),  # it was closed while it lay idle
        )
        self._process = new_id()
        self._told: dict[str, Counted] = {}
        """By key: the period, and all requests in it that Redis knows of this process."""

    async def add(self, counts: Sequence[Counted]) -> dict[Counted, int]:
        """Add counts in one round trip; return the totals of all processes. Raises NotCounted."""
        own = [counted._replace(requests=counted.requests + self._known(counted)) for counted in counts]
        try:
            async with self._redis.pipeline(transaction=False) as pipeline:
                for counted in own:
                    name = f"cmem:requests:{counted.key_id}:{counted.period}"
                    pipeline.hset(name, self._process, str(counted.requests))
                    pipeline.expire(name, _KEPT_SECONDS)
                    pipeline.hvals(name)
                replies = await pipeline.execute()
        except self._failures as cause:
            raise NotCounted(f"{type(cause).__name__}: {cause}") from cause
        self._told.update({counted.key_id: counted for counted in own})
        return {counted: sum(map(int, values)) for counted, values in zip(counts, replies[2::3], strict=True)}

    async def close(self) -> None:
        """Close the connections."""
        await self._redis.aclose()

    def _known(self, counted: Counted) -> int:
        told = self._told.get(counted.key_id)
        return told.requests if told is not None and told.period == counted.period else 0
