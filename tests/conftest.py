"""What every test stands on: a migrated database copied per test, a real server on loopback, and keys of teams."""

import shutil
import socket
import threading
import time
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
import structlog
import uvicorn
from structlog.testing import capture_logs

from app.caller import EVERYTHING, Caller, server_owner
from app.main import create_app
from app.services import credentials, keys, projects, teams
from app.settings import Settings
from app.store import migrations
from app.store.database import Database


@pytest.fixture(scope="session")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A database at head, made by the real migrations once."""
    path = tmp_path_factory.mktemp("template") / "cmem.db"
    migrations.upgrade(f"sqlite:///{path}")
    return path


@pytest.fixture
def database(template: Path, tmp_path: Path) -> Iterator[Database]:
    """An empty database of this test's own."""
    path = tmp_path / "cmem.db"
    shutil.copy(template, path)
    opened = Database(f"sqlite:///{path}")
    yield opened
    opened.close()


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
def servers(template: Path, folder: Path) -> Iterator[Callable[..., Server]]:
    """Yield a function that starts servers with the settings given; all stop in the end."""
    running: list[tuple[uvicorn.Server, threading.Thread, Database]] = []

    def start(**settings: object) -> Server:
        chosen = Settings(_env_file=None, **{"data_dir": folder, "vectors": "off", "log_level": "ERROR", **settings})  # type: ignore[call-arg, arg-type]
        path = chosen.data_dir / "cmem.db"
        if not path.exists():
            chosen.data_dir.mkdir(parents=True, exist_ok=True)
            shutil.copy(template, path)
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
def start_server(template: Path, tmp_path: Path) -> Iterator[Callable[..., Server]]:
    """Start servers of this test's own, with the settings given; all stop with the test."""
    with servers(template, tmp_path) as start:
        yield start


@pytest.fixture(scope="session")
def server(template: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """One server with the default settings of tests, for all of them: a test's own are the teams that it makes."""
    with servers(template, tmp_path_factory.mktemp("server")) as start:
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
