"""What requests leave behind, buffered in memory and stored in the background: counts, usage, audit events.

Everything but the storing happens on the event loop, so nothing here needs a lock.
"""

import asyncio
from collections import Counter
from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, Final

import structlog
from litestar.handlers import BaseRouteHandler

from app.api.http.monthly_quota import MonthlyQuota
from app.api.http.rate_limiting import RateLimiter
from app.api.http.thread_pools import ThreadPools
from app.caller import MEMORIES_READ, MEMORIES_WRITE
from app.clock import now_ms
from app.services.audit import entries
from app.services.audit.entries import AuditBatch, AuditBuffer
from app.services.quotas import rate_limit, usage
from app.services.quotas.rate_limit import Quota, RequestCount
from app.services.quotas.usage import UsageKey
from app.store.database import Database
from app.store.engines import rls_context

_log = structlog.get_logger(__name__)

FLUSH_INTERVAL_SECONDS: Final = 1.0
_MAX_WAIT_SECONDS: Final = 0.25


class RequestRecorder:
    """Buffers what requests leave behind. `audit_events` takes the events that no transaction of a request records."""

    def __init__(
        self,
        database: Database,
        thread_pools: ThreadPools,
        *,
        rate_limiter: RateLimiter | None,
        monthly_quota: MonthlyQuota | None,
    ) -> None:
        """Store the counts of these limits as well; None is a limit that is off."""
        self._database = database
        self._thread_pools = thread_pools
        self._rate_limiter = rate_limiter
        self._monthly_quota = monthly_quota
        self._flushing: asyncio.Task[None] | None = None
        self._usage: Counter[UsageKey] = Counter()
        self.audit_events = AuditBuffer()

    def count_usage(self, key_id: str, team_id: str | None, handler: BaseRouteHandler) -> None:
        """Count a request for the usage report."""
        self._usage[UsageKey(key_id, team_id, rate_limit.month(now_ms()), _kind(handler))] += 1

    async def sync_counts(self, key_id: str) -> None:
        """Exchange the counts of a key with other processes when they are due, so that its limits hold for all."""
        for quota in self._quotas(rate_limit_if=lambda rate_limiter: not rate_limiter.is_paused):
            if quota.should_sync(key_id):
                self._start_flush()
            if quota.must_sync(key_id):
                await self._wait_for_flush()

    async def flush_every(self, seconds: float) -> None:
        """Store what was buffered, periodically, until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            self._start_flush()

    async def flush(self) -> None:
        """Store what has been buffered so far, so that a query sees it; give up waiting after a moment."""
        await self._wait_for_flush()
        self._start_flush()
        await self._wait_for_flush()

    async def close(self) -> None:
        """Store what is left."""
        if self._flushing is not None:
            await self._flushing
        await self._flush_or_log()
        if self._rate_limiter is not None:
            await self._rate_limiter.close()

    def _quotas(self, *, rate_limit_if: Callable[[RateLimiter], bool]) -> list[Quota]:
        limits: list[RateLimiter | MonthlyQuota] = []
        if self._rate_limiter is not None and rate_limit_if(self._rate_limiter):
            limits.append(self._rate_limiter)
        if self._monthly_quota is not None:
            limits.append(self._monthly_quota)
        return [limit.quota for limit in limits]

    def _start_flush(self) -> None:
        if self._flushing is None or self._flushing.done():
            self._flushing = asyncio.create_task(self._flush_or_log())

    async def _wait_for_flush(self) -> None:
        """Wait for the running flush, but not for long: limits fail open, and a line in the log says so."""
        if self._flushing is None:
            return
        done, _ = await asyncio.wait({self._flushing}, timeout=_MAX_WAIT_SECONDS)
        if not done:
            _log.warning("limits_fail_open", waited_seconds=_MAX_WAIT_SECONDS)

    async def _flush_or_log(self) -> None:
        """Limits fail open: when the counts cannot be stored, no client must be locked out."""
        syncing = [self._rate_limiter.sync_with_redis()] if self._rate_limiter else []
        await asyncio.gather(*syncing, self._store_or_log())

    async def _store_or_log(self) -> None:
        try:
            await self._store()
        except Exception:  # noqa: BLE001 - limits fail open, whatever the reason
            _log.exception("limits_not_stored")

    async def _store(self) -> None:
        """Store everything in one transaction; after a failure it stays in the buffers for the next attempt."""
        quotas = self._quotas(rate_limit_if=lambda rate_limiter: not rate_limiter.uses_redis)
        counts = [count for quota in quotas for count in quota.unsynced()]
        usage_counts, self._usage = self._usage, Counter()
        events = self.audit_events.drain()
        if not (usage_counts or events or counts):
            return
        try:
            totals = await self._thread_pools.write(partial(self._write, counts, usage_counts, events))
        except BaseException:
            self._usage += usage_counts
            self.audit_events.requeue(events)
            raise
        for quota in quotas:
            quota.apply_totals(totals)

    def _write(
        self, counts: list[RequestCount], usage_counts: Counter[UsageKey], events: AuditBatch
    ) -> dict[RequestCount, int]:
        with rls_context.acting_for(None), self._database.write() as connection:  # the buffers hold rows of many teams
            if usage_counts:
                usage.store(connection, usage_counts)
            entries.store_batch(connection, events)
            return rate_limit.store(connection, counts)


@lru_cache(maxsize=512)
def _kind(handler: BaseRouteHandler) -> usage.Kind:
    """Return the kind of request for the usage report: by the scope of the route, and by its method."""
    opt: dict[str, Any] = handler.opt
    if opt.get("scope") == MEMORIES_WRITE:
        return "write"
    if opt.get("scope") == MEMORIES_READ:
        return "search" if "POST" in getattr(handler, "http_methods", ()) else "read"
    return "admin"
