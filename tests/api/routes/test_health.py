"""Liveness, readiness and version, for monitors and for claude-mem's hooks."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest
from sqlalchemy import text

from app.services.operations.readiness import Readiness
from app.store.database import Database
from app.store.schema import migrations
from tests.conftest import Server, Tenant, make_tenant
from tests.databases import Databases

PUBLIC = ["/healthz", "/readyz", "/api/health", "/api/readiness", "/api/version", "/v1/info", "/openapi.json", "/docs"]


@pytest.mark.parametrize("path", PUBLIC)
def test_public_routes_require_no_key(server: Server, path: str):
    """Monitors and newcomers have none."""
    assert httpx.get(f"{server.url}{path}").status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/v1/memories", "/v1/projects", "/v1/healthz", "/v1/health/../projects", "/v1/memories/", "/v1/projects/health"],
)
def test_no_other_route_is_public(server: Server, path: str):
    """Neither a similar name nor a detour bypasses authentication."""
    assert httpx.get(f"{server.url}{path}").status_code in (401, 404)


def test_healthz_is_ok_while_the_process_runs(server: Server):
    """The smallest possible reply."""
    assert httpx.get(f"{server.url}/healthz").json() == {"status": "ok"}


def test_an_intact_server_is_ready(server: Server):
    """Database readable and writable, migrations at head, vectors switched off."""
    assert httpx.get(f"{server.url}/readyz").json() == {
        "status": "ok",
        "database": "ok",
        "migrations": "ok",
        "vectors": "off",
    }


def test_hook_routes_return_the_documented_keys(server: Server):
    """Status, version, uptime and the state of the vector index."""
    health = httpx.get(f"{server.url}/api/health").json()

    assert health.keys() == {"status", "version", "uptime", "mcpConnected", "vectors"}
    assert (health["status"], health["vectors"]) == ("ok", {"state": "off"})
    assert httpx.get(f"{server.url}/api/readiness").json().keys() == health.keys()
    assert httpx.get(f"{server.url}/api/version").json() == {"version": health["version"]}


def test_info_describes_the_server(server: Server):
    """Name, versions and how to authenticate."""
    info = httpx.get(f"{server.url}/v1/info").json()

    assert info.keys() == {"name", "version", "runtime", "authMode", "schemaVersion"}
    assert (info["name"], info["authMode"], info["schemaVersion"]) == ("cmem-server", "api-key", migrations.head())


def test_health_does_not_wait_for_writers(start_server: Callable[..., Server]):
    """None of the polled routes waits for the write lock."""
    server = start_server()
    with server.database.write() as connection:
        connection.execute(text("SELECT 1"))  # the first statement takes the write lock
        started = time.monotonic()
        statuses = [httpx.get(f"{server.url}{path}").status_code for path in PUBLIC[:5]]

    assert statuses == [200] * 5
    assert time.monotonic() - started < 5


def corrupt(path: Path) -> None:
    path.write_bytes(b"not a database" * 5000)


def block_writer_lock(path: Path) -> None:
    path.with_name(path.name + "-writer.lock").unlink(missing_ok=True)
    path.with_name(path.name + "-writer.lock").mkdir()


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("damage", "reported"),
    [
        (corrupt, "not readable: it is corrupt"),
        (block_writer_lock, "not writable"),
    ],
)
@pytest.mark.sqlite
def test_a_damaged_database_file_is_reported(database: Database, damage: Callable[[Path], None], reported: str):
    """Readiness names what is wrong after the next background check."""
    readiness = Readiness(database)
    readiness.try_writing()
    assert readiness.of_database() == ("ok", "ok")
    database.close()

    damage(database.path)
    readiness.try_writing()
    readiness.check_pages()

    assert readiness.of_database()[0] == reported


def test_a_missing_table_is_reported(databases: Databases, database: Database, tmp_path: Path):
    """Every table is checked."""
    readiness = Readiness(database)
    with closing(Database(databases.owner_url(tmp_path))) as owned, owned.write() as connection:
        connection.exec_driver_sql("DROP TABLE memory_sources")

    readiness.try_writing()

    state, revision = readiness.of_database()
    assert (state.split(":")[0], revision) == ("not writable", "ok")


def test_a_repaired_database_is_reported(database: Database):
    """The next successful check makes it ready again."""
    readiness = Readiness(database, writable="not writable")

    readiness.try_writing()

    assert readiness.of_database() == ("ok", "ok")


@pytest.mark.sqlite
def test_a_server_with_a_damaged_database_is_alive_and_not_ready(start_server: Callable[..., Server]):
    """Liveness stays 200, readiness is 503 with the cause."""
    server = start_server()
    corrupt(server.database.path)

    alive, ready = (httpx.get(f"{server.url}{path}", timeout=30) for path in ("/healthz", "/readyz"))

    assert (alive.status_code, ready.status_code) == (200, 503)
    assert ready.json()["database"] == "not readable: it is corrupt"
    assert ready.json()["status"] == "unavailable"


@pytest.mark.postgresql
def test_a_server_without_its_database_is_alive_and_not_ready(
    databases: Databases, start_server: Callable[..., Server], tmp_path: Path
):
    """Liveness stays 200, readiness and all other requests are 503."""
    server = start_server()
    team = make_tenant(server, "a")
    databases.drop(tmp_path)

    with closing(team.http) as http:
        statuses = [http.get(path).status_code for path in ("/healthz", "/readyz", "/v1/memories")]
        ready = http.get("/readyz").json()

    assert statuses == [200, 503, 503]
    assert (ready["status"], ready["database"]) == ("unavailable", "not readable: it cannot be reached")


def test_missing_migrations_are_reported(databases: Databases, database: Database, tmp_path: Path):
    """The current and the expected revision are named."""
    database.close()
    migrations.downgrade(databases.owner_url(tmp_path), "0001")

    state, revision = Readiness(database).of_database()

    assert state == "ok"
    assert "0001" in revision
    assert migrations.head() in revision


def test_polls_are_not_recorded(team: Tenant):
    """Health requests are neither audited nor counted."""
    before = team.http.get("/v1/audit").json()["audit"]
    for path in PUBLIC:
        team.http.get(path)

    assert team.http.get("/v1/audit").json()["audit"] == before
