"""What is counted on the way in and stored in the background: rate limit, monthly quota, usage, the gathered audit.

Everything but the storing happens on the event loop, so nothing here needs a lock.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Final

import structlog
from litestar.handlers import BaseRouteHandler
from litestar.types import Message, Scope
from sqlalchemy import Connection

from app.api.http.thread_pools import Workers
from app.caller import MEMORIES_READ, MEMORIES_WRITE, Caller
from app.clock import now_ms
from app.errors import QuotaExceeded, RateLimited
from app.services.audit import entries
from app.services.audit.entries import AuditBatch, AuditBuffer
from app.services.quotas import rate_limit, usage
from app.services.quotas.rate_limit import Quota, RequestCount
from app.services.quotas.redis_counter import RedisCounter
from app.services.quotas.usage import UsageKey
from app.store.database import Database
from app.store.engines import rls_context
from app.store.engines.pipelining import flush

_log = structlog.get_logger(__name__)

STORE_TIMEOUT_SECONDS: Final = 0.25
STORE_EVERY_SECONDS: Final = 1.0
_RATE_HEADERS: Final = "rate_headers"
OVER_QUOTA: Final = "over_quota"


class UsedUp(Database):
    """The database for a key that is over its quota: it tells what is wrong with a request, and else refuses it.

    402 is the last of the checks. Those before it look at rows, so the first look or change is made: then it is raised,
    before anything is committed or answered.
    """

    def __init__(self, whole: Database) -> None:
        vars(self).update(vars(whole))
        self._whole = whole

    @contextmanager
    def read(self) -> Iterator[Connection]:
        """Yield a connection, and refuse afterwards."""
        with self._whole.read() as connection:
            yield connection
        raise _used_up()

    @contextmanager
    def read_one(self) -> Iterator[Connection]:
        """Yield a connection, and refuse afterwards."""
        with self._whole.read_one() as connection:
            yield connection
        raise _used_up()

    @contextmanager
    def write(self, *, exclusive: bool = True) -> Iterator[Connection]:
        """Yield a connection, refuse afterwards, and so roll back."""
        with self._whole.write(exclusive=exclusive) as connection:
            yield connection
            flush(connection)
            raise _used_up()

    @contextmanager
    def insert(self, *alone_in: str) -> Iterator[Connection]:
        """Yield a connection, refuse afterwards, and so roll back."""
        with self._whole.insert(*alone_in) as connection:
            yield connection
            flush(connection)
            raise _used_up()


def _used_up() -> QuotaExceeded:
    return QuotaExceeded("This key has made all the requests of its month.")


class Metering:
    """Counts the requests of each key."""

    def __init__(
        self, database: Database, *, per_minute: int, per_month: int, shared: RedisCounter | None = None
    ) -> None:
        """Limit requests per minute and month and key; 0 is no limit. `shared` counts those of a minute."""
        self._database = database
        self._shared = shared
        self._share_again_at = 0.0
        self._rate = Quota(per_minute, rate_limit.minute) if per_minute else None
        self._quota = Quota(per_month, rate_limit.month) if per_month else None
        self._storing: asyncio.Task[None] | None = None
        self._usage: Counter[UsageKey] = Counter()
        self.gathering = AuditBuffer()

    async def admit(self, workers: Workers, caller: Caller, scope: Scope) -> None:
        """Count a request; raise RateLimited when the minute is used up, mark it when the month is."""
        key_id = caller.key_id
        if key_id is None:
            return
        for allowance in self._allowances():
            if allowance is self._rate and time.monotonic() < self._share_again_at:
                continue  # nobody counts together at the moment, and each request that asks would make it worse
            if allowance.should_sync(key_id):
                self._begin_storing(workers)
            if allowance.must_sync(key_id):
                await self._stored()
        if self._rate is not None:
            self._require_rate(self._rate, key_id, scope)
        if self._quota is not None:
            if self._quota.remaining(key_id) == 0:
                scope["state"][OVER_QUOTA] = True
                return
            self._quota.count(key_id)
        used = UsageKey(key_id, caller.team_id, rate_limit.month(now_ms()), _kind(scope["route_handler"]))
        self._usage[used] += 1

    async def store_every(self, seconds: float, workers: Workers) -> None:
        """Store again and again, until cancelled."""
        while True:
            await asyncio.sleep(seconds)
            self._begin_storing(workers)

    async def tell(self, workers: Workers) -> None:
        """Have what was counted and gathered so far stored, unless that takes more than a moment."""
        await self._stored()
        self._begin_storing(workers)
        await self._stored()

    async def close(self, workers: Workers) -> None:
        """Store what is left."""
        if self._storing is not None:
            await self._storing
        await self._store_or_log(workers)
        if self._shared is not None:
            await self._shared.close()

    def _require_rate(self, rate: Quota, key_id: str, scope: Scope) -> None:
        left = rate.remaining(key_id)
        seconds = rate_limit.seconds_left_in_minute()
        scope["state"][_RATE_HEADERS] = (rate.limit, max(0, left - 1), seconds)
        if left == 0:
            raise RateLimited(f"This key may make {rate.limit} requests a minute.", retry_after_seconds=seconds)
        rate.count(key_id)

    def _allowances(self) -> list[Quota]:
        return [allowance for allowance in (self._rate, self._quota) if allowance is not None]

    def _begin_storing(self, workers: Workers) -> None:
        if self._storing is None or self._storing.done():
            self._storing = asyncio.create_task(self._store_or_log(workers))

    async def _stored(self) -> None:
        """Wait for the others to learn of our requests, a moment at most: then let it pass, and say so."""
        if self._storing is None:
            return
        done, _ = await asyncio.wait({self._storing}, timeout=STORE_TIMEOUT_SECONDS)
        if not done:
            _log.warning("limits_fail_open", waited_seconds=STORE_TIMEOUT_SECONDS)

    async def _store_or_log(self, workers: Workers) -> None:
        """Limits fail open: who counts and cannot answer must not lock everybody out."""
        await asyncio.gather(self._share(), self._store(workers))

    async def _share(self) -> None:
        """Count together with the other replicas; what could not be counted is tried again the next time."""
        if self._shared is None or self._rate is None or not (unsynced := self._rate.unsynced()):
            return
        try:
            self._rate.apply_totals(await self._shared.add(unsynced))
        except Exception as cause:  # noqa: BLE001 - whatever it is
            self._share_again_at = time.monotonic() + STORE_EVERY_SECONDS
            _log.warning("limits_not_shared", reason=str(cause))

    async def _store(self, workers: Workers) -> None:
        try:
            await self._stored_at_once(workers)
        except Exception:  # noqa: BLE001 - whatever it is
            _log.exception("limits_not_stored")

    async def _stored_at_once(self, workers: Workers) -> None:
        """Store everything in one transaction; what could not be stored is tried again the next time."""
        stored_here = [each for each in self._allowances() if self._shared is None or each is not self._rate]
        unsynced = [counted for allowance in stored_here for counted in allowance.unsynced()]
        used, self._usage = self._usage, Counter()
        deeds = self.gathering.drain()
        if not (used or deeds or unsynced):
            return
        try:
            totals = await workers.write(partial(self._write, unsynced, used, deeds))
        except BaseException:
            self._usage += used
            self.gathering.requeue(deeds)
            raise
        for allowance in stored_here:
            allowance.apply_totals(totals)

    def _write(
        self, unsynced: list[RequestCount], used: Counter[UsageKey], deeds: AuditBatch
    ) -> dict[RequestCount, int]:
        with rls_context.acting_for(None), self._database.write() as connection:  # what is gathered is of many teams
            if used:
                usage.store(connection, used)
            entries.store_batch(connection, deeds)
            return rate_limit.store(connection, unsynced)


async def add_rate_headers(message: Message, scope: Scope) -> None:
    """Tell how much of the rate limit is left, also with a refusal: a hook before each message is sent."""
    if message["type"] != "http.response.start" or (known := scope["state"].get(_RATE_HEADERS)) is None:
        return
    names = (b"x-ratelimit-limit", b"x-ratelimit-remaining", b"x-ratelimit-reset")
    added = [(name, str(value).encode()) for name, value in zip(names, known, strict=True)]
    message["headers"] = [*message["headers"], *added]


@lru_cache(maxsize=512)
def _kind(handler: BaseRouteHandler) -> usage.Kind:
    """Return the kind of request as usage counts it: by the scope a route needs, and whether it asks a question."""
    opt: dict[str, Any] = handler.opt
    if opt.get("scope") == MEMORIES_WRITE:
        return "write"
    if opt.get("scope") == MEMORIES_READ:
        return "search" if "POST" in getattr(handler, "http_methods", ()) else "read"
    return "admin"
