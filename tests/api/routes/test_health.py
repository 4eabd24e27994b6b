"""Is it alive, is it ready, what is it: for monitors and for claude-mem's hooks."""

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
from tests.stores import Stores

PUBLIC = ["/healthz", "/readyz", "/api/health", "/api/readiness", "/api/version", "/v1/info", "/openapi.json", "/docs"]


@pytest.mark.parametrize("path", PUBLIC)
def test_public_routes_need_no_key(server: Server, path: str):
    """Monitors and newcomers have none."""
    assert httpx.get(f"{server.url}{path}").status_code == 200


@pytest.mark.parametrize(
    "path",
    ["/v1/memories", "/v1/projects", "/v1/healthz", "/v1/health/../projects", "/v1/memories/", "/v1/projects/health"],
)
def test_no_other_route_is_public(server: Server, path: str):
    """Neither a name nor a detour opens a route."""
    assert httpx.get(f"{server.url}{path}").status_code in (401, 404)


def test_the_process_says_that_it_lives(server: Server):
    """The smallest of answers."""
    assert httpx.get(f"{server.url}/healthz").json() == {"status": "ok"}


def test_a_whole_server_is_ready(server: Server):
    """Database readable and writable, migrations at head, vectors off by choice."""
    assert httpx.get(f"{server.url}/readyz").json() == {
        "status": "ok",
        "database": "ok",
        "migrations": "ok",
        "vectors": "off",
    }


def test_what_hooks_poll_has_the_documented_keys(server: Server):
    """Status, version, uptime and the state of the vectors."""
    health = httpx.get(f"{server.url}/api/health").json()

    assert health.keys() == {"status", "version", "uptime", "mcpConnected", "vectors"}
    assert (health["status"], health["vectors"]) == ("ok", {"state": "off"})
    assert httpx.get(f"{server.url}/api/readiness").json().keys() == health.keys()
    assert httpx.get(f"{server.url}/api/version").json() == {"version": health["version"]}


def test_info_says_what_the_server_is(server: Server):
    """Name, versions and how to come in."""
    info = httpx.get(f"{server.url}/v1/info").json()

    assert info.keys() == {"name", "version", "runtime", "authMode", "schemaVersion"}
    assert (info["name"], info["authMode"], info["schemaVersion"]) == ("cmem-server", "api-key", migrations.head())


def test_health_answers_at_once_while_somebody_writes(start_server: Callable[..., Server]):
    """Nothing that is polled waits for the write lock."""
    server = start_server()
    with server.database.write() as connection:
        connection.execute(text("SELECT 1"))  # with the first statement comes the turn
        started = time.monotonic()
        statuses = [httpx.get(f"{server.url}{path}").status_code for path in PUBLIC[:5]]

    assert statuses == [200] * 5
    assert time.monotonic() - started < 5


def not_a_database(path: Path) -> None:
    path.write_bytes(b"not a database" * 5000)


def without_room(path: Path) -> None:
    path.with_name(path.name + "-writer.lock").unlink(missing_ok=True)
    path.with_name(path.name + "-writer.lock").mkdir()


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("harm", "said"),
    [
        (not_a_database, "not readable: it is corrupt"),
        (without_room, "not writable"),
    ],
)
@pytest.mark.sqlite
def test_a_broken_file_shows(database: Database, harm: Callable[[Path], None], said: str):
    """Readiness names what does not work, after the next trial in the background."""
    readiness = Readiness(database)
    readiness.try_writing()
    assert readiness.of_database() == ("ok", "ok")
    database.close()

    harm(database.path)
    readiness.try_writing()
    readiness.look_at_pages()

    assert readiness.of_database()[0] == said


def test_a_table_that_is_gone_shows(stores: Stores, database: Database, tmp_path: Path):
    """Each of them is looked at."""
    readiness = Readiness(database)
    with closing(Database(stores.owner_url(tmp_path))) as owned, owned.write() as connection:
        connection.exec_driver_sql("DROP TABLE memory_sources")

    readiness.try_writing()

    state, revision = readiness.of_database()
    assert (state.split(":")[0], revision) == ("not writable", "ok")


def test_a_repaired_database_shows_too(database: Database):
    """The next trial that works makes it ready again."""
    readiness = Readiness(database, writable="not writable")

    readiness.try_writing()

    assert readiness.of_database() == ("ok", "ok")


@pytest.mark.sqlite
def test_a_server_over_a_broken_database_lives_and_is_not_ready(start_server: Callable[..., Server]):
    """Liveness stays 200, readiness is 503 with the cause."""
    server = start_server()
    not_a_database(server.database.path)

    alive, ready = (httpx.get(f"{server.url}{path}", timeout=30) for path in ("/healthz", "/readyz"))

    assert (alive.status_code, ready.status_code) == (200, 503)
    assert ready.json()["database"] == "not readable: it is corrupt"
    assert ready.json()["status"] == "unavailable"


@pytest.mark.postgresql
def test_a_server_whose_database_is_gone_lives_and_is_not_ready(
    stores: Stores, start_server: Callable[..., Server], tmp_path: Path
):
    """Liveness stays 200, readiness is 503; who asks for more is told to come again."""
    server = start_server()
    team = make_tenant(server, "a")
    stores.forget(tmp_path)

    with closing(team.http) as http:
        statuses = [http.get(path).status_code for path in ("/healthz", "/readyz", "/v1/memories")]
        ready = http.get("/readyz").json()

    assert statuses == [200, 503, 503]
    assert (ready["status"], ready["database"]) == ("unavailable", "not readable: it cannot be reached")


def test_a_database_behind_the_code_shows(stores: Stores, database: Database, tmp_path: Path):
    """Migrations that are missing are named."""
    database.close()
    migrations.downgrade(stores.owner_url(tmp_path), "0001")

    state, revision = Readiness(database).of_database()

    assert state == "ok"
    assert "0001" in revision
    assert migrations.head() in revision


def test_a_poll_leaves_no_trace(team: Tenant):
    """Health is neither audited nor counted."""
    before = team.http.get("/v1/audit").json()["audit"]
    for path in PUBLIC:
        team.http.get(path)

    assert team.http.get("/v1/audit").json()["audit"] == before
