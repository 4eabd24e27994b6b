"""Why a server on PostgreSQL is not ready has a name."""

from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from app.services.operations.readiness import Readiness
from app.store.database import Database
from app.store.schema import migrations
from tests.conftest import Server
from tests.postgresql import OWNER, SERVER, Cluster
from tests.stores import PostgresqlStores


@pytest.fixture(scope="session", params=["postgresql"])
def stores(cluster: Cluster) -> PostgresqlStores:
    """These tests are about PostgreSQL alone."""
    return PostgresqlStores(cluster)


@pytest.fixture
def owned(database: Database) -> Iterator[Database]:
    """The same database as its owner."""
    with closing(Database(database.url.replace(SERVER, OWNER, 1))) as opened:
        yield opened


def name_of(database: Database) -> str:
    with database.read() as connection:
        return str(connection.exec_driver_sql("SELECT current_database()").scalar_one())


def said(database: Database) -> str:
    readiness = Readiness(database)
    readiness.try_writing()
    readiness.look_at_pages()
    return readiness.of_database()[0]


@pytest.mark.parametrize(
    ("harm", "cause"),
    [
        ("ALTER DATABASE {name} SET default_transaction_read_only = on", "not writable: it is read-only"),
        ("DROP TABLE memory_sources", "not writable: a table is missing"),
        ("REVOKE SELECT ON projects FROM cmem_server", "not writable: this role lacks a right"),
        ("DROP TABLE alembic_version", "not readable: a table is missing"),
    ],
)
def test_what_does_not_work_has_a_name(database: Database, owned: Database, harm: str, cause: str):
    """The next trial in the background tells, and the one after the repair."""
    assert said(database) == "ok"
    name = name_of(database)
    database.close()
    with owned.write() as connection:
        connection.exec_driver_sql(harm.format(name=name))

    assert said(database) == cause


def test_a_lock_that_nobody_gives_back_has_a_name(database: Database, owned: Database, monkeypatch: pytest.MonkeyPatch):
    """Somebody's open transaction, say."""
    monkeypatch.setattr("app.store.engines.postgresql._LIMITS", "SET lock_timeout = 100")
    with owned.write() as connection:
        connection.exec_driver_sql("LOCK TABLE alembic_version IN SHARE MODE")

        assert said(database) == "not writable: another program keeps it locked"


def test_a_server_that_is_not_there_has_a_name():
    """Nobody listens at its address."""
    with closing(Database("postgresql+psycopg://cmem_server:secret@127.0.0.1:1/cmem")) as database:
        readiness = Readiness(database)
        readiness.try_writing()

        assert readiness.writable == "not writable: it cannot be reached"
        assert readiness.of_database() == ("not readable: it cannot be reached", "unknown")


def test_a_server_whose_database_is_gone_lives_and_is_not_ready(start_server: Callable[..., Server], cluster: Cluster):
    """503 with the cause while it is away; when it is back, nobody has to restart anything."""
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


def test_a_server_behind_the_code_is_not_ready(start_server: Callable[..., Server]):
    """Its owner has to migrate first."""
    server = start_server()
    migrations.downgrade(server.settings.owner_database_url, "0002")

    reply = httpx.get(f"{server.url}/readyz")

    assert reply.status_code == 503
    assert reply.json()["migrations"] == f"at revision 0002, needed is {migrations.head()}"


def test_a_standby_is_read_only(database: Database, cluster: Cluster, tmp_path: Path):
    """As after a failover that left the address behind."""
    with cluster.standby() as standby, closing(Database(standby.url(SERVER, name_of(database)))) as behind:
        readiness = Readiness(behind)
        readiness.try_writing()

        assert readiness.of_database() == ("not writable: it is read-only", "ok")
