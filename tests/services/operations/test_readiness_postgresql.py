"""Readiness on PostgreSQL: each cause of an outage is named."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from app.services.operations.readiness import Readiness
from app.store.database import Database
from app.store.schema import migrations
from tests.conftest import Server
from tests.databases import PostgresqlDatabases
from tests.postgresql import OWNER, SERVER, Cluster


@pytest.fixture(scope="session", params=["postgresql"])
def databases(cluster: Cluster) -> PostgresqlDatabases:
    """These tests need PostgreSQL."""
    return PostgresqlDatabases(cluster)


@pytest.fixture
def owned(database: Database) -> Iterator[Database]:
    """The same database, opened as its owner."""
    with closing(Database(database.url.replace(SERVER, OWNER, 1))) as opened:
        yield opened


def name_of(database: Database) -> str:
    with database.read() as connection:
        return str(connection.exec_driver_sql("SELECT current_database()").scalar_one())


def database_state(database: Database) -> str:
    readiness = Readiness(database)
    readiness.try_writing()
    readiness.check_pages()
    return readiness.of_database()[0]


@pytest.mark.parametrize(
    ("harm", "cause"),
    [
        ("ALTER DATABASE {name} SET default_transaction_read_only = on", "not writable: it is read-only"),
        ("DROP TABLE memory_sources", "not writable: a table is missing"),
        ("REVOKE SELECT ON projects FROM cmem_server", "not writable: this role lacks a privilege"),
        ("REVOKE UPDATE ON alembic_version FROM cmem_server", "not writable: this role lacks a privilege"),
        ("DROP TABLE alembic_version", "not readable: a table is missing"),
    ],
)
def test_cause_of_an_outage_is_named(database: Database, owned: Database, harm: str, cause: str):
    """The next background check reports it."""
    assert database_state(database) == "ok"
    name = name_of(database)
    database.close()
    with owned.write() as connection:
        connection.exec_driver_sql(harm.format(name=name))

    assert database_state(database) == cause


def test_lock_held_by_another_session_is_named(database: Database, owned: Database, monkeypatch: pytest.MonkeyPatch):
    """For example by a transaction that was left open."""
    monkeypatch.setattr("app.store.engines.postgresql._LIMITS", "SET lock_timeout = 100")
    with owned.write() as connection:
        connection.exec_driver_sql("LOCK TABLE alembic_version IN SHARE MODE")

        assert database_state(database) == "not writable: another process holds the lock"


def test_unreachable_database_server_is_named():
    """Nothing listens at its address."""
    with closing(Database("postgresql+psycopg://cmem_server:secret@127.0.0.1:1/cmem")) as database:
        readiness = Readiness(database)
        readiness.try_writing()

        assert readiness.writable == "not writable: it cannot be reached"
        assert readiness.of_database() == ("not readable: it cannot be reached", "unknown")


def test_server_without_its_database_is_alive_but_not_ready(start_server: Callable[..., Server], cluster: Cluster):
    """/readyz answers 503 with the cause during the outage, and recovers without a restart."""
    server = start_server()
    name = name_of(server.database)
    with cluster.connect() as connection:
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS false".encode())
        connection.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s AND pid <> pg_backend_pid()",
            [name],
        )
        alive, away = (httpx.get(f"{server.url}{path}") for path in ("/healthz", "/readyz"))
        connection.execute(f"ALTER DATABASE {name} ALLOW_CONNECTIONS true".encode())
    back = httpx.get(f"{server.url}/readyz")

    assert (alive.status_code, away.status_code) == (200, 503)
    assert away.json()["database"] == "not readable: it cannot be reached"
    assert "not readable" not in back.json()["database"]


def test_server_on_an_older_revision_is_not_ready(start_server: Callable[..., Server]):
    """The owner has to migrate first."""
    server = start_server()
    migrations.downgrade(server.settings.owner_database_url, "0002")

    reply = httpx.get(f"{server.url}/readyz")

    assert reply.status_code == 503
    assert reply.json()["migrations"] == f"at revision 0002, expected {migrations.head()}"


def test_standby_is_reported_as_read_only(database: Database, cluster: Cluster, tmp_path: Path):
    """As after a failover, when the URL still points at the old primary."""
    with cluster.standby() as standby, closing(Database(standby.url(SERVER, name_of(database)))) as replica:
        readiness = Readiness(replica)
        readiness.try_writing()

        assert readiness.of_database() == ("not writable: it is read-only", "ok")
