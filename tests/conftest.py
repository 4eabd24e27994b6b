"""What every test stands on: a migrated database copied per test, a real server on loopback, and keys of teams."""

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
from structlog.testing import capture_logs

from app.caller import EVERYTHING, Caller, server_owner
from app.clock import new_id
from app.main import create_app
from app.services.identity import credentials, keys, teams
from app.services.projects import projects
from app.settings import Settings
from app.store.database import Database
from tests import postgresql
from tests.postgresql import Cluster
from tests.serving import Home
from tests.stores import PostgresqlStores, SqliteStores, Stores, of_folder

DIALECT = "dialect"
DIALECTS = ("sqlite", "postgresql")
NO_POSTGRESQL = "PostgreSQL's programs (initdb, pg_ctl) are not installed: nothing was tried on it"


def pytest_configure(config: pytest.Config) -> None:
    """Name the markers of tests that are about one dialect."""
    config.addinivalue_line("markers", "sqlite: about SQLite alone: its file, its locks, its pages")
    config.addinivalue_line("markers", "postgresql: about PostgreSQL alone: its roles, its policies")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave out what is about one dialect alone where it is another; what says nothing of it runs once."""
    items[:] = [item for item in items if not _is_of_another_dialect(item)]
    for item in items:
        item.user_properties.append((DIALECT, _dialect(item)))


def _is_of_another_dialect(item: pytest.Item) -> bool:
    own = _dialect(item)
    return own is not None and any(item.get_closest_marker(other) for other in DIALECTS if other != own)


def _dialect(item: pytest.Item) -> str | None:
    callspec = getattr(item, "callspec", None)
    return callspec.params.get("stores") if callspec else None


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Say how many tests passed on each dialect, and whether one could not be tried at all."""
    passed = [report for report in terminalreporter.getreports("passed") if report.when == "call"]
    counts = Counter(dict(report.user_properties).get(DIALECT) for report in passed)
    for dialect in DIALECTS:
        terminalreporter.write_line(f"{counts[dialect]} tests passed on {dialect}")
    terminalreporter.write_line(f"{counts[None]} tests passed that need no database of either")
    if postgresql.binaries() is None:
        terminalreporter.write_line(NO_POSTGRESQL, red=True)


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """A PostgreSQL server, started by the first test that asks for it."""
    programs = postgresql.binaries()
    if programs is None:
        pytest.skip(NO_POSTGRESQL)
    with postgresql.running(programs) as started:
        yield started


@pytest.fixture(scope="module")
def fragile() -> Iterator[Cluster]:
    """A PostgreSQL server of one module's own, which its tests may stop; it keeps what it committed."""
    if (programs := postgresql.binaries()) is None:
        pytest.skip(NO_POSTGRESQL)
    with postgresql.running(programs) as started:
        yield started


@pytest.fixture(scope="session", params=DIALECTS)
def stores(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Stores:
    """Where databases come from: whatever uses this is tried on each dialect."""
    if request.param == "sqlite":
        return SqliteStores(tmp_path_factory.mktemp("template") / "cmem.db")
    return PostgresqlStores(request.getfixturevalue("cluster"))


@pytest.fixture
def database(stores: Stores, tmp_path: Path) -> Iterator[Database]:
    """An empty database of this test's own."""
    with of_folder(stores, tmp_path) as url, closing(Database(url)) as opened:
        yield opened


@pytest.fixture
def unborn(cluster: Cluster) -> Iterator[str]:
    """A PostgreSQL database without any table, as the role that owns it."""
    name = f"unborn_{new_id().replace('-', '')}"
    cluster.create(name)
    yield cluster.url(postgresql.OWNER, name)
    cluster.drop(name)


@pytest.fixture
def home(stores: Stores, tmp_path: Path) -> Iterator[Home]:
    """Where processes of this test's own are the first to keep anything."""
    yield Home(tmp_path, stores.first_settings(tmp_path))
    stores.forget(tmp_path)


@dataclass(frozen=True)
class Tenant:
    """A team with one project, and a `*` key of it."""

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
def servers(stores: Stores, folder: Path) -> Iterator[Callable[..., Server]]:
    """Yield a function that starts servers with the settings given; all stop in the end."""
    running: list[tuple[uvicorn.Server, threading.Thread, Database]] = []

    def start(**settings: object) -> Server:
        standard = {"data_dir": folder, "vectors": "off", "log_level": "ERROR", **settings}
        standard = {**stores.settings(Path(str(standard["data_dir"]))), **standard}
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
def start_server(stores: Stores, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start servers of this test's own, with the settings given; all stop with the test."""
    with of_folder(stores, tmp_path), servers(stores, tmp_path) as start:
        yield start


@pytest.fixture(scope="session")
def server(stores: Stores, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with the default settings of tests, for all of them: a test's own are the teams that it makes."""
    with servers(stores, tmp_path_factory.mktemp("server")) as start:
        yield start()


@pytest.fixture
def logged() -> Iterator[list[MutableMapping[str, Any]]]:
    """The lines that are logged during the test, of every level, whatever a server has configured before."""
    before = structlog.get_config()
    structlog.reset_defaults()
    with capture_logs() as lines:
        yield lines
    structlog.configure(**before)


@pytest.fixture
def as_team(server: Server) -> Iterator[Callable[[str], Tenant]]:
    """Return the tenant of a name, made at its first use."""
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
    """The tenant that a test is about when it is about one."""
    return as_team("a")


def make_tenant(server: Server, name: str) -> Tenant:
    """Make a team with a project and a `*` key."""
    with server.database.write() as connection:
        team = teams.create(connection, server_owner(), name=name)
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
    return credentials.text_of(minted)


def client(server: Server, api_key: str | None) -> httpx.Client:
    """Return an HTTP client with a key, or without."""
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    return httpx.Client(base_url=server.url, headers=headers, timeout=30, trust_env=False)


def _wait_for(server: uvicorn.Server) -> None:
    deadline = time.monotonic() + 20
    while not server.started:
        assert time.monotonic() < deadline, "the server did not start"
        time.sleep(0.01)
