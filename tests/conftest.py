"""Fixtures for every test: a migrated database copied per test, a real server on loopback, and keys of teams."""

import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
import uvicorn
from argon2 import PasswordHasher
from structlog.testing import capture_logs

from app.caller import EVERYTHING, Caller, server_owner
from app.clock import new_id
from app.main import create_app
from app.services.identity import credentials, keys, teams
from app.services.projects import projects
from app.settings import Settings
from app.store.database import Database
from tests import postgresql
from tests.databases import Databases, PostgresqlDatabases, SqliteDatabases, database_url
from tests.postgresql import Cluster
from tests.serving import Home

DIALECT = "dialect"
DIALECTS = ("sqlite", "postgresql")
CLUSTERS = {"cluster", "own_cluster"}
"""The fixtures that start a PostgreSQL server."""
NO_POSTGRESQL = "PostgreSQL (initdb, pg_ctl) is not installed: its tests were skipped"


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers."""
    config.addinivalue_line("markers", "sqlite: about SQLite only: its file, its locks, its pages")
    config.addinivalue_line("markers", "postgresql: about PostgreSQL only: its roles, its policies")
    config.addinivalue_line("markers", "process: starts processes or takes seconds; `make check` leaves it out")
    config.addinivalue_line("markers", "needs_postgresql: set here on whatever runs on PostgreSQL")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Drop tests about one dialect from the other one, and mark those that need PostgreSQL."""
    items[:] = [item for item in items if not _is_of_another_dialect(item)]
    for item in items:
        item.user_properties.append((DIALECT, _dialect(item)))
        if _dialect(item) == "postgresql" or CLUSTERS & set(getattr(item, "fixturenames", ())):
            item.add_marker(pytest.mark.needs_postgresql)


def _is_of_another_dialect(item: pytest.Item) -> bool:
    own = _dialect(item)
    return own is not None and any(item.get_closest_marker(other) for other in DIALECTS if other != own)


def _dialect(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("databases") if callspec else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Report how many tests passed on each dialect, and whether PostgreSQL was missing."""
    passed = [report for report in terminalreporter.getreports("passed") if report.when == "call"]
    counts = Counter(dict(report.user_properties).get(DIALECT) for report in passed)
    for dialect in DIALECTS:
        terminalreporter.write_line(f"{counts[dialect]} tests passed on {dialect}")
    terminalreporter.write_line(f"{counts[None]} tests passed without a dialect")
    if postgresql.binaries() is None:
        terminalreporter.write_line(NO_POSTGRESQL, red=True)


@pytest.fixture(scope="session", autouse=True)
def cheap_key_hashes() -> Iterator[PasswordHasher]:
    """Hash keys of tests in well under a millisecond: thousands of them would take minutes at the real cost."""
    documented = credentials._HASHER
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(credentials, "_HASHER", PasswordHasher(time_cost=1, memory_cost=8, parallelism=1))
        yield documented


@pytest.fixture
def documented_key_hashes(cheap_key_hashes: PasswordHasher, monkeypatch: pytest.MonkeyPatch) -> None:
    """Hash keys at the real cost, for tests that are about it."""
    monkeypatch.setattr(credentials, "_HASHER", cheap_key_hashes)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server, started by the first test that needs it."""
    programs = postgresql.binaries()
    if programs is None:
        pytest.skip(NO_POSTGRESQL)
    with postgresql.running(programs) as started:
        yield started


@pytest.fixture(scope="module")
def own_cluster() -> Iterator[Cluster]:
    """A PostgreSQL server for one module, whose tests may stop it; committed rows survive a restart."""
    if (programs := postgresql.binaries()) is None:
        pytest.skip(NO_POSTGRESQL)
    with postgresql.running(programs) as started:
        yield started


@pytest.fixture(scope="session", params=DIALECTS)
def databases(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Databases:
    """Where databases come from: a test that uses this runs once on each dialect."""
    if request.param == "sqlite":
        return SqliteDatabases(tmp_path_factory.mktemp("template") / "cmem.db")
    return PostgresqlDatabases(request.getfixturevalue("cluster"))


@pytest.fixture
def database(databases: Databases, tmp_path: Path) -> Iterator[Database]:
    """An empty database for this test alone."""
    with database_url(databases, tmp_path) as url, closing(Database(url)) as opened:
        yield opened


@pytest.fixture
def empty_database(cluster: Cluster) -> Iterator[str]:
    """The URL of a PostgreSQL database without tables, as its owner."""
    name = f"empty_{new_id().replace('-', '')}"
    cluster.create(name)
    yield cluster.url(postgresql.OWNER, name)
    cluster.drop(name)


@pytest.fixture
def home(databases: Databases, tmp_path: Path) -> Iterator[Home]:
    """An empty data folder and the settings for the first server started on it."""
    yield Home(tmp_path, databases.initial_settings(tmp_path))
    databases.drop(tmp_path)


@dataclass(frozen=True)
class Tenant:
    """A team with one project and a `*` key."""

    team_id: str
    project_id: str
    api_key: str
    caller: Caller
    http: httpx.Client

    def post_memory(self, **fields: object) -> httpx.Response:
        """Store a memory in the team's project."""
        return self.http.post("/v1/memories", json={"projectId": self.project_id, **fields})


@dataclass(frozen=True)
class Server:
    """A server that listens on loopback, and its database."""

    url: str
    database: Database
    settings: Settings


@contextmanager
def servers(databases: Databases, folder: Path) -> Iterator[Callable[..., Server]]:
    """Yield a function that starts servers with the given settings; all stop at the end."""
    running: list[tuple[uvicorn.Server, threading.Thread, Database]] = []

    def start(**settings: object) -> Server:
        standard = {"data_dir": folder, "vectors": "off", "log_level": "ERROR", **settings}
        standard = {**databases.settings(Path(str(standard["data_dir"]))), **standard}
        chosen = Settings(_env_file=None, **standard)  # type: ignore[call-arg, arg-type]
        listener = socket.create_server(("127.0.0.1", 0))
        config = uvicorn.Config(create_app(chosen), log_config=None, access_log=False)
        server = uvicorn.Server(config)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]}, daemon=True)
        thread.start()
        database = Database(chosen.resolved_database_url)
        running.append((server, thread, database))
        _wait_for(server)
        return Server(f"http://127.0.0.1:{listener.getsockname()[1]}", database, chosen)

    yield start
    for server, thread, database in running:
        server.should_exit = True
        thread.join(timeout=20)
        database.close()


@pytest.fixture
def start_server(databases: Databases, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start servers for this test alone, with the given settings; all stop with the test."""
    with database_url(databases, tmp_path), servers(databases, tmp_path) as start:
        yield start


@pytest.fixture(scope="session")
def server(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with the default test settings, shared by all tests: each test makes its own teams."""
    with servers(databases, tmp_path_factory.mktemp("server")) as start:
        yield start()


@pytest.fixture
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """The lines logged during the test at every level, regardless of how a server configured logging before."""
    before = structlog.get_config()
    structlog.reset_defaults()
    with capture_logs() as lines:
        yield lines
    structlog.configure(**before)


@pytest.fixture
def as_team(server: Server) -> Iterator[Callable[[str], Tenant]]:
    """Return the tenant with a name, created on first use."""
    made: dict[str, Tenant] = {}

    def tenant(name: str) -> Tenant:
        if name not in made:
            made[name] = make_tenant(server, name)
        return made[name]

    yield tenant
    for each in made.values():
        each.http.close()


@pytest.fixture
def team(as_team: Callable[[str], Tenant]) -> Tenant:
    """The tenant, for tests that need only one."""
    return as_team("a")


def make_tenant(server: Server, name: str) -> Tenant:
    """Make a team with a project and a `*` key."""
    with server.database.write() as connection:
        # a slug of its own: to number the thousandth team `a` takes a thousand look-ups
        slug = f"team-{new_id().replace('-', '')}"
        team = teams.create(connection, server_owner(), name=name, slug=slug)
        caller = server_owner().within(team.id)
        project = projects.create(connection, caller, name=f"{name} project")
    api_key = make_key(server.database, caller, scopes=(EVERYTHING,))
    return Tenant(team.id, project.id, api_key, caller, client(server, api_key))


def make_key(database: Database, caller: Caller, **fields: object) -> str:
    """Make an API key of the caller's team and return its text."""
    minted = credentials.mint()
    secret_hash = credentials.hash_secret(minted.secret)
    with database.write() as connection:
        keys.create(connection, caller, keys.NewKey(**fields), minted, secret_hash)  # type: ignore[arg-type]
    return credentials.format_key(minted)


def client(server: Server, api_key: str | None) -> httpx.Client:
    """Return an HTTP client with a key, or without."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    # verify=False: to load certificates takes longer than most requests, and nothing here speaks TLS
    return httpx.Client(base_url=server.url, headers=headers, timeout=30, trust_env=False, verify=False)


def _wait_for(server: uvicorn.Server) -> None:
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.01)
