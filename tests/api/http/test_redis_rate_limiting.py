"""Rate limits counted in Redis for all replicas: as accurate as in the database, and without writing to it."""

import asyncio
import signal
import time
from collections.abc import Callable, Sequence

import httpx
import pytest
from sqlalchemy import text

from app.services.quotas import rate_limit
from app.services.quotas.rate_limit import RequestCount
from app.services.quotas.redis_counter import RedisCounter, RedisUnavailable
from app.store.database import Database
from tests import redis_server
from tests.chroma_server import free_port
from tests.conftest import Server, Tenant, client, make_tenant

LIMIT = 20
SHARE = LIMIT // 10

pytestmark = pytest.mark.skipif(redis_server.PROGRAM is None, reason="redis-server is not installed")


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def replicas(start_server: Callable[..., Server], port: int) -> tuple[Server, Server]:
    """Two servers on one database that count in the Redis on a port."""
    if (left := rate_limit.seconds_left_in_minute()) < 8:
        time.sleep(left)
    settings = {"rate_limit_per_min": LIMIT, "monthly_request_cap": 1_000, "redis_url": f"redis://127.0.0.1:{port}/0"}
    return start_server(**settings), start_server(**settings)


@pytest.fixture
def tenant(replicas: tuple[Server, Server]) -> Tenant:
    tenant = make_tenant(replicas[0], "a")
    tenant.http.close()
    return tenant


def admitted(http: httpx.Client, requests: int) -> int:
    return sum(http.get("/v1/auth/whoami").status_code == 200 for _ in range(requests))


def stored_periods(database: Database) -> set[str]:
    with database.read() as connection:
        return set(connection.execute(text("SELECT period FROM request_counters WHERE count > 0")).scalars())


def test_two_replicas_share_a_limit_within_the_documented_overshoot(
    replicas: tuple[Server, Server], tenant: Tenant, port: int
):
    """The monthly counts stay in the database, which is backed up."""
    one, other = replicas
    with redis_server.running(port), client(one, tenant.api_key) as here, client(other, tenant.api_key) as there:
        total = sum(admitted(http, 1) for _ in range(LIMIT) for http in (here, there))
        time.sleep(1.5)  # counts are stored once a second

    assert LIMIT <= total <= LIMIT + 2 * SHARE
    assert {len(period) for period in stored_periods(one.database)} == {len("2026-11")}


def test_without_redis_no_request_is_refused_or_delayed(
    replicas: tuple[Server, Server], tenant: Tenant, monkeypatch: pytest.MonkeyPatch
):
    """Redis was never started: each server counts its own requests only, and tries to connect once a second."""
    attempts: list[float] = []
    add = RedisCounter.add

    async def counted(self: RedisCounter, counts: Sequence[RequestCount]) -> dict[RequestCount, int]:
        attempts.append(time.monotonic())
        return await add(self, counts)

    monkeypatch.setattr(RedisCounter, "add", counted)
    started = time.monotonic()
    with client(replicas[0], tenant.api_key) as here:
        assert admitted(here, LIMIT - 1) == LIMIT - 1
    seconds = time.monotonic() - started

    assert seconds < 8
    assert len(attempts) <= 2 + seconds


def test_command_without_a_reply_is_counted_once(port: int):
    """Redis is stopped for longer than the timeout, and then executes every command it was sent."""

    async def count_with_two_replicas() -> list[int]:
        one, other = RedisCounter(f"redis://127.0.0.1:{port}"), RedisCounter(f"redis://127.0.0.1:{port}")
        count = RequestCount("key", "2026-11-30T12:34", 5)
        totals = list((await one.add([count])).values())
        server.send_signal(signal.SIGSTOP)
        for _ in range(2):
            with pytest.raises(RedisUnavailable):
                await one.add([count])
        server.send_signal(signal.SIGCONT)
        totals += [*(await one.add([count])).values(), *(await other.add([count])).values()]
        await one.close()
        await other.close()
        return totals

    with redis_server.running(port) as server:
        assert asyncio.run(count_with_two_replicas()) == [5, 10, 15]


def test_limit_holds_again_once_redis_is_back(replicas: tuple[Server, Server], tenant: Tenant, port: int):
    """Requests that could not be counted meanwhile are counted then."""
    one, other = replicas
    with client(one, tenant.api_key) as here, client(other, tenant.api_key) as there:
        with redis_server.running(port):
            assert admitted(here, 4) == 4
        used = 4 + admitted(here, 2)
        with redis_server.running(port):
            time.sleep(1.5)
            total = sum(admitted(http, 1) for _ in range(LIMIT) for http in (here, there))
    assert used == 6
    assert total <= LIMIT + 2 * SHARE
