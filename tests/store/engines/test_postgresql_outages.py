"""The database goes away, or takes too long: nobody is told a lie, and nobody has to start anything again."""

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
from app.errors import ConnectionLost, NothingDone, Unavailable
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


def ask_until(done: threading.Event, tenant: Tenant, numbers: Iterator[int]) -> list[tuple[str, httpx.Response]]:
    """Write a memory and read them all, again and again; return every content that was sent, with its reply."""
    replies: list[tuple[str, httpx.Response]] = []
    with httpx.Client(base_url=tenant.http.base_url, headers=tenant.http.headers, trust_env=False, timeout=30) as http:
        while not done.is_set():
            content = f"written {next(numbers)}"
            body = {"projectId": tenant.project_id, "content": content}
            replies.append((content, http.post("/v1/memories", json=body)))
            replies.append(("", http.get("/v1/memories")))
    return replies


def contents(tenant: Tenant) -> Counter[str]:
    """Return what is stored, by content."""
    found: Counter[str] = Counter()
    cursor: dict[str, str] | None = {}
    while cursor is not None:
        page = tenant.http.get("/v1/memories", params={"limit": 200, **cursor}).json()
        found.update(memory["content"] for memory in page["memories"])
        cursor = {"cursor": page["nextCursor"]} if page["nextCursor"] else None
    return found


def test_a_restart_under_load_is_503_for_a_moment_and_loses_no_acknowledged_write(own_cluster: Cluster, tenant: Tenant):
    """Readers and writers see successes and `503` with Retry-After, nothing else; then all is well by itself."""
    done, numbers = threading.Event(), itertools.count()
    with ThreadPoolExecutor(CONNECTIONS) as pool:
        asking = [pool.submit(ask_until, done, tenant, numbers) for _ in range(CONNECTIONS)]
        time.sleep(1)
        own_cluster.restart()
        restarted_at = time.monotonic()
        while tenant.post_memory(content="it recovered").status_code != 201:
            assert time.monotonic() < restarted_at + RECOVERS_WITHIN_SECONDS
        time.sleep(1)
        done.set()
        replies = [reply for each in asking for reply in each.result(timeout=60)]

    refused = [reply for _, reply in replies if not reply.is_success]
    assert {(reply.status_code, reply.headers.get("Retry-After")) for reply in refused} == {(503, "1")}
    found = contents(tenant)
    acknowledged = [content for content, reply in replies if content and reply.is_success]
    assert [content for content in acknowledged if found[content] != 1] == []
    assert max(found.values()) == 1


def test_connections_that_were_ended_while_they_lay_idle_are_noticed_by_nobody(own_cluster: Cluster, tenant: Tenant):
    """Not even a write is refused: it had not begun."""
    for _ in range(3):
        assert tenant.post_memory(content="before").is_success
        assert tenant.http.get("/v1/memories").is_success
        with own_cluster.connect() as operator:
            operator.execute(BACKENDS)
        assert tenant.http.get("/v1/memories").status_code == 200
        assert tenant.post_memory(content="after").is_success


def test_a_read_that_lost_its_connection_in_the_middle_says_so_and_may_be_tried_again(
    own_cluster: Cluster, own_database: Database
):
    """The first attempt is cut off, the second answers."""
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


def test_a_write_that_lost_its_connection_is_not_tried_again(own_cluster: Cluster, own_database: Database):
    """Nobody knows whether it was committed: the client is told, and decides."""
    attempts: list[int] = []

    def write() -> None:
        with own_database.write() as connection:
            attempts.append(1)
            connection.execute(text("UPDATE alembic_version SET version_num = version_num"))
            with own_cluster.connect() as operator:
                operator.execute(BACKENDS)

    with pytest.raises(ConnectionLost):
        retrying(write, retry_on=(NothingDone,))()
    assert len(attempts) == 1


def test_a_write_that_lost_its_connection_before_it_was_committed_is_tried_again(
    own_cluster: Cluster, own_database: Database
):
    """Nothing of it was done, whatever it had sent."""
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


def test_one_of_two_deadlocked_writers_is_tried_again(own_database: Database):
    """Each holds a lock that the other wants; PostgreSQL undoes one, which then does it all anew."""
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


def test_every_transaction_has_its_limits(own_database: Database):
    """Those that read and those that write; whoever only holds a lock may hold it for as long as his work takes."""
    for begin in (own_database.read, own_database.write):
        with begin() as connection:
            names = ("statement_timeout", "lock_timeout", "idle_in_transaction_session_timeout")
            limits = [connection.scalar(text(f"SHOW {name}")) for name in names]
        assert limits == ["30s", "10s", "1min"]


def test_a_statement_that_takes_too_long_is_cut_off(own_database: Database, monkeypatch):
    """It is Unavailable, at once when its time is over, and not tried again."""
    monkeypatch.setitem(engines._LIMITS, "statement_timeout", 100)
    started_at = time.monotonic()
    with pytest.raises(Unavailable) as caught, own_database.read() as connection:
        connection.execute(text("SELECT pg_sleep(20)"))
    assert type(caught.value) is Unavailable
    assert time.monotonic() < started_at + 5


def test_a_writer_does_not_wait_for_ever_for_his_turn(own_database: Database, monkeypatch):
    """The other one keeps it; this one is told that it takes too long."""
    monkeypatch.setitem(engines._LIMITS, "lock_timeout", 100)

    def write() -> None:
        with own_database.write() as connection:
            connection.execute(text("SELECT 1"))

    with own_database.write() as connection:
        connection.execute(text("SELECT 1"))
        with pytest.raises(Unavailable):
            write()


def test_a_transaction_that_is_left_idle_is_ended(own_database: Database, monkeypatch):
    """Its locks would stop everybody else."""
    monkeypatch.setitem(engines._LIMITS, "idle_in_transaction_session_timeout", 100)

    def dawdle() -> None:
        with own_database.read() as connection:
            for _ in range(2):
                connection.execute(text("SELECT 1"))
                time.sleep(0.5)

    with pytest.raises(NothingDone):
        dawdle()
    with own_database.read() as connection:
        assert connection.scalar(text("SELECT 1")) == 1


def test_a_mistake_in_a_statement_is_no_outage(own_database: Database):
    """It stays the bug that it is."""
    with pytest.raises(Exception, match="does not exist") as caught, own_database.read() as connection:
        connection.execute(text("SELECT nonsense"))
    assert isinstance(getattr(caught.value, "orig", None), psycopg.errors.UndefinedColumn)
