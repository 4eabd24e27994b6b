"""PgBouncer in front of PostgreSQL, in transaction mode: each transaction may get another connection."""

import os
import pwd
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path

import psycopg
import pytest
from sqlalchemy import text

from app.store.database import Database
from app.store.engines.postgres_url import parse_url
from app.store.engines.rls_context import acting_for
from tests.conftest import Server, Tenant, make_tenant, servers
from tests.databases import PostgresqlDatabases
from tests.postgresql import SERVER, Cluster

PROGRAM = shutil.which("pgbouncer", path=f"{os.environ['PATH']}:/usr/sbin:/sbin")
UNPREPARED = "prepare_threshold=none"
"""The URL option for a pooler that does not track prepared statements, as newer ones can."""
CONNECTIONS = 3
"""Fewer than one server's threads, so that they are shared."""
ROUNDS = 12
"""More than the five executions after which psycopg prepares a statement."""

pytestmark = pytest.mark.skipif(PROGRAM is None, reason="pgbouncer is not installed")


class PooledDatabases(PostgresqlDatabases):
    """The same databases, to which servers connect through the pooler."""

    def __init__(self, cluster: Cluster, port: int) -> None:
        super().__init__(cluster)
        self._port = port

    def settings(self, folder: Path) -> dict[str, str]:
        """Return the pooler's URL for the server; commands connect directly."""
        address = self.url(folder).replace(
            f"host={self.cluster.folder}", f"host=127.0.0.1&port={self._port}&{UNPREPARED}"
        )
        return {"database_url": address, "database_admin_url": self.owner_url(folder)}


@contextmanager
def pgbouncer(cluster: Cluster, folder: Path) -> Iterator[int]:
    """Run PgBouncer with a few connections in transaction mode; yield its port."""
    with closing(socket.create_server(("127.0.0.1", 0))) as probe:
        port = probe.getsockname()[1]
    config = folder / "pgbouncer.ini"
    config.write_text(
        f"[databases]\n* = host={cluster.folder} user={SERVER}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n"
        f"listen_port = {port}\nunix_socket_dir =\nauth_type = any\npool_mode = transaction\n"
        f"default_pool_size = {CONNECTIONS}\nmax_client_conn = 200\n"
    )
    user = pwd.getpwnam("nobody").pw_uid if os.geteuid() == 0 else None
    shutil.copy(config, cluster.folder / "pgbouncer.ini")
    command = [str(PROGRAM), "-q", str(cluster.folder / "pgbouncer.ini")]
    with subprocess.Popen(command, user=user, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            wait_for_port(port)
            yield port
        finally:
            process.kill()


def wait_for_port(port: int) -> None:
    deadline = time.monotonic() + 10
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            assert time.monotonic() < deadline, "pgbouncer did not start"
            time.sleep(0.05)
        else:
            return


@pytest.fixture(scope="module")
def databases(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PooledDatabases]:
    with pgbouncer(cluster, tmp_path_factory.mktemp("pgbouncer")) as port:
        yield PooledDatabases(cluster, port)


@pytest.fixture(scope="module")
def server(databases: PooledDatabases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers(databases, tmp_path_factory.mktemp("pooled")) as start:
        yield start()


def test_routes_work_through_the_pooler(team: Tenant):
    """Create, change, read, search and delete, often enough that psycopg would prepare each statement."""
    project = {"projectId": team.project_id}
    for number in range(ROUNDS):
        made = team.post_memory(content=f"lighthouse number{number}").json()["memory"]["id"]
        session = team.http.post("/v1/sessions/start", json={**project, "contentSessionId": f"s{number}"})
        batch = team.http.post("/v1/memories/batch", json=[{**project, "content": f"batch {number}"}])
        changed = team.http.patch(f"/v1/memories/{made}", json={"title": f"title{number}"})
        found = team.http.post("/v1/search", json={**project, "query": f"number{number}"})
        assert [reply.status_code for reply in (session, batch, changed, found)] == [201, 201, 200, 200]
        assert [memory["id"] for memory in found.json()["memories"]] == [made]
        assert team.http.get(f"/v1/memories/{made}").json()["memory"]["title"] == f"title{number}"
        assert team.http.delete(f"/v1/memories/{made}").status_code == 200
    assert len(team.http.get("/v1/memories").json()["memories"]) == ROUNDS


def test_teams_that_share_connections_see_only_their_own_rows(server: Server):
    """The team is set in each transaction, and reset with it."""
    tenants = [make_tenant(server, f"team{number}") for number in range(6)]

    def work(tenant: Tenant) -> list[set[str]]:
        seen = []
        with tenant.http:
            for number in range(ROUNDS):
                assert tenant.post_memory(content=f"memory {number}").status_code == 201
                memories = tenant.http.get("/v1/memories").json()["memories"]
                seen.append({memory["teamId"] for memory in memories})
        return seen

    with ThreadPoolExecutor(len(tenants)) as pool:
        seen = list(pool.map(work, tenants))
    assert seen == [[{tenant.team_id}] * ROUNDS for tenant in tenants]


def test_shared_connection_keeps_no_transaction_settings(server: Server):
    """Neither its team nor its time limits."""
    address = server.settings.database_url.replace("postgresql+psycopg", "postgresql").replace(f"&{UNPREPARED}", "")
    with closing(Database(server.settings.database_url)) as database, acting_for("somebody"):
        for _ in range(ROUNDS):
            with database.write() as connection:
                connection.execute(text("SELECT 1"))
    for _ in range(CONNECTIONS):
        with psycopg.connect(address, autocommit=True, prepare_threshold=None) as plain:
            left = plain.execute(
                "SELECT NULLIF(current_setting('cmem.team_id', true), ''), current_setting('statement_timeout')"
            ).fetchone()
        assert left == (None, "0")


def test_advisory_lock_is_exclusive_through_the_pooler(server: Server):
    """The lock belongs to a transaction, which keeps its connection."""
    with (
        closing(Database(server.settings.database_url)) as first,
        closing(Database(server.settings.database_url)) as second,
    ):
        with first.advisory_lock("job"), second.advisory_lock("job", wait=False) as is_held:
            assert not is_held
        with second.advisory_lock("job", wait=False) as is_held:
            assert is_held


def test_url_option_controls_prepared_statements():
    """It becomes an option of the driver, and is removed from the URL."""
    address, options = parse_url(f"postgresql+psycopg://a@/b?host=c&{UNPREPARED}")
    assert (str(address), options) == (
        "postgresql+psycopg://a@/b?host=c",
        {"connect_timeout": 5, "prepare_threshold": None},
    )
    assert parse_url("postgresql+psycopg://a@/b?prepare_threshold=0")[1] == {
        "connect_timeout": 5,
        "prepare_threshold": 0,
    }
    assert parse_url("postgresql+psycopg://a@/b")[1] == {"connect_timeout": 5}
