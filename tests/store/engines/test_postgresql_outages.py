"""PostgreSQL restarts, ends connections or is slow: errors are truthful, and the server recovers without a restart."""

import itertools
import threading
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import httpx
import psycopg
import pytest
from sqlalchemy import text

from app.api.http.thread_pools import retrying
from app.errors import DatabaseConnectionLost, NothingDone, Unavailable
from app.store.database import Database
from app.store.engines import postgresql as engines
from tests.conftest import Tenant, make_tenant, servers
from tests.databases import PostgresqlDatabases
from tests.postgresql import Cluster

CONNECTIONS = 8
RECOVERS_WITHIN_SECONDS = 5.0
BACKENDS = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'cmem-server'"


@pytest.fixture
def own_stores(own_cluster: Cluster) -> PostgresqlDatabases:
    return PostgresqlDatabases(own_cluster)


@pytest.fixture
def own_database(own_stores: PostgresqlDatabases, tmp_path: Path) -> Iterator[Database]:
    with closing(Database(own_stores.url(tmp_path))) as opened:
        yield opened


@pytest.fixture
def tenant(own_stores: PostgresqlDatabases, tmp_path: Path) -> Iterator[Tenant]:
    with servers(own_stores, tmp_path) as start:
        made = make_tenant(start(), "a")
        with made.http:
            yield made


def send_requests_until(
    done: threading.Event, tenant: Tenant, numbers: Iterator[int]
) -> list[tuple[str, httpx.Response]]:
    """Repeatedly write a memory and list them all; return each content sent, with its reply."""
    replies: list[tuple[str, httpx.Response]] = []
    with httpx.Client(base_url=tenant.http.base_url, headers=tenant.http.headers, trust_env=False, timeout=30) as http:
        while not done.is_set():
            content = f"written {next(numbers)}"
            body = {"projectId": tenant.project_id, "content": content}
            replies.append((content, http.post("/v1/memories", json=body)))
            replies.append(("", http.get("/v1/memories")))
    return replies


def stored_contents(tenant: Tenant) -> Counter[str]:
    """Return the number of stored memories by content."""
    stored: Counter[str] = Counter()
    cursor: dict[str, str] | None = {}
    while cursor is not None:
        page = tenant.http.get("/v1/memories", params={"limit": 200, **cursor}).json()
        stored.update(memory["content"] for memory in page["memories"])
        cursor = {"cursor": page["nextCursor"]} if page["nextCursor"] else None
    return stored


def test_restart_under_load_is_briefly_503_and_loses_no_acknowledged_write(own_cluster: Cluster, tenant: Tenant):
    """Clients get only successes and `503` with Retry-After; then the server recovers automatically."""
    done, numbers = threading.Event(), itertools.count()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        clients = [pool.submit(send_requests_until, done, tenant, numbers) for _ in range(CONNECTIONS)]
        time.sleep(1)
        own_cluster.restart()
        restarted_at = time.monotonic()
        while tenant.post_memory(content="it recovered").status_code != 201:
            assert time.monotonic() < restarted_at + RECOVERS_WITHIN_SECONDS
        time.sleep(1)
        done.set()
        replies = [reply for each in clients for reply in each.result(timeout=60)]

    failed = [reply for _, reply in replies if not reply.is_success]
    assert {(reply.status_code, reply.headers.get("Retry-After")) for reply in failed} == {(503, "1")}
    stored = stored_contents(tenant)
    acknowledged = [content for content, reply in replies if content and reply.is_success]
    assert [content for content in acknowledged if stored[content] != 1] == []
    assert max(stored.values()) == 1


def test_idle_connections_that_were_ended_are_replaced_unnoticed(own_cluster: Cluster, tenant: Tenant):
    """Not even a write fails, because it had not begun."""
    for _ in range(3):
        assert tenant.post_memory(content="before").is_success
        assert tenant.http.get("/v1/memories").is_success
        with own_cluster.connect() as operator:
            operator.execute(BACKENDS)
        assert tenant.http.get("/v1/memories").status_code == 200
        assert tenant.post_memory(content="after").is_success


def test_read_that_lost_its_connection_is_nothing_done_and_is_retried(own_cluster: Cluster, own_database: Database):
    """The first attempt is cut off, the second succeeds."""
    attempts: list[int] = []

    def read() -> int:
        with own_database.read() as connection:
            attempts.append(1)
            if len(attempts) == 1:
                with own_cluster.connect() as operator:
                    operator.execute(BACKENDS)
            return connection.scalar(text("SELECT 42"))

    with pytest.raises(NothingDone):
        read()
    attempts.clear()
    assert (retrying(read)(), len(attempts)) == (42, 2)


def test_write_that_lost_its_connection_at_commit_is_not_retried(own_cluster: Cluster, own_database: Database):
    """It may have been committed, so the client must decide."""
    attempts: list[int] = []

    def write() -> None:
        with own_database.write() as connection:
            attempts.append(1)
            connection.execute(text("UPDATE alembic_version SET version_num = version_num"))
            with own_cluster.connect() as operator:
                operator.execute(BACKENDS)

    with pytest.raises(DatabaseConnectionLost):
        retrying(write, retry_on=(NothingDone,))()
    assert len(attempts) == 1


def test_write_that_lost_its_connection_before_commit_is_retried(own_cluster: Cluster, own_database: Database):
    """None of its statements took effect."""
    attempts: list[int] = []

    def write() -> None:
        with own_database.write() as connection:
            attempts.append(1)
            for _ in range(2):
                connection.execute(text("UPDATE alembic_version SET version_num = version_num"))
                if len(attempts) == 1:
                    with own_cluster.connect() as operator:
                        operator.execute(BACKENDS)

    retrying(write, retry_on=(NothingDone,))()
    assert len(attempts) == 2


def test_one_of_two_deadlocked_writers_is_retried(own_database: Database):
    """Each holds a lock that the other needs; PostgreSQL rolls one back, which then runs again."""
    both_hold_one = threading.Barrier(2)
    attempts: list[str] = []

    def write(first: int, second: int) -> None:
        with own_database.write(exclusive=False) as connection:
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": first})
            attempts.append("begun")
            if len(attempts) <= 2:
                both_hold_one.wait(timeout=10)
            connection.execute(text("SELECT pg_advisory_xact_lock(:key)"), {"key": second})

    with ThreadPoolExecutor(2) as pool:
        writers = [
            pool.submit(retrying(lambda pair=pair: write(*pair), retry_on=(NothingDone,))) for pair in ((1, 2), (2, 1))
        ]
        assert [writer.result(timeout=30) for writer in writers] == [None, None]
    assert len(attempts) == 3


def test_every_transaction_has_time_limits(own_database: Database):
    """For reading and for writing; only a transaction that merely holds an advisory lock has none."""
    for begin in (own_database.read, own_database.write):
        with begin() as connection:
            names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
            limits = [connection.scalar(text(f"SHOW {name}")) for name in names]
        assert limits == ["30s", "10s", "1min"]


def test_slow_statement_is_cancelled(own_database: Database, monkeypatch):
    """It is Unavailable as soon as its time is over, and not retried."""
    monkeypatch.setitem(engines._LIMITS, "statement_timeout", 100)
    started_at = time.monotonic()
    with pytest.raises(Unavailable) as caught, own_database.read() as connection:
        connection.execute(text("SELECT pg_sleep(20)"))
    assert type(caught.value) is Unavailable
    assert time.monotonic() < started_at + 5


def test_writer_does_not_wait_forever_for_its_turn(own_database: Database, monkeypatch):
    """It is Unavailable while another writer holds the turn for too long."""
    monkeypatch.setitem(engines._LIMITS, "lock_timeout", 100)

    def write() -> None:
        with own_database.write() as connection:
            connection.execute(text("SELECT 1"))

    with own_database.write() as connection:
        connection.execute(text("SELECT 1"))
        with pytest.raises(Unavailable):
            write()


def test_idle_transaction_is_ended(own_database: Database, monkeypatch):
    """Its locks would block all others."""
    monkeypatch.setitem(engines._LIMITS, "idle_in_transaction_session_timeout", 100)

    def idle() -> None:
        with own_database.read() as connection:
            for _ in range(2):
                connection.execute(text("SELECT 1"))
                time.sleep(0.5)

    with pytest.raises(NothingDone):
        idle()
    with own_database.read() as connection:
        assert connection.scalar(text("SELECT 1")) == 1


def test_invalid_statement_is_not_an_outage(own_database: Database):
    """It stays the bug that it is, and is not Unavailable."""
    with pytest.raises(Exception, match="does not exist") as caught, own_database.read() as connection:
        connection.execute(text("SELECT nonsense"))
    assert isinstance(getattr(caught.value, "orig", None), psycopg.errors.UndefinedColumn)
