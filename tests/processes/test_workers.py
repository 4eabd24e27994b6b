"""`serve --workers N`: several processes that answer as one, and stop as one."""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import click
import httpx
import pytest

from app.caller import SERVER_ADMIN, server_owner
from app.processes import supervisor
from app.services.operations import fulltext_check
from app.settings import Settings
from app.store.database import Database
from app.vectors.chroma.folder import start_token
from tests.conftest import make_key
from tests.databases import Databases
from tests.processes import slow_clock
from tests.processes.test_crash import stored
from tests.serving import ROOT, Home, Started, serve_command, serving

CONNECTIONS = 32
"""The kernel spreads them: one of four workers gets none of them once in 2,500 runs."""
SOON_SECONDS = 30
pytestmark = pytest.mark.process
WRITES, WRITERS = 1_600, 16
FACT = "The payment gateway waits three seconds for the bank."
QUESTION = "how long until the financial institution replies?"


@dataclass(frozen=True)
class Team:
    """The first team of a server, over new or kept connections."""

    started: Started

    @property
    def project_id(self) -> str:
        return self.started.exported["PROJECT"]

    def client(self, key: str = "") -> httpx.Client:
        headers = {"Authorization": f"Bearer {key or self.started.exported['KEY']}"}
        # verify=False: plain HTTP needs no certificates, and reading them takes longer than the request
        return httpx.Client(base_url=self.started.url, headers=headers, trust_env=False, verify=False, timeout=30)

    def ask(self, method: str, path: str, key: str = "", **sent: Any) -> httpx.Response:
        """Send a request over a new connection."""
        with self.client(key) as http:
            return http.request(method, path, **sent)

    def everywhere(self, method: str, path: str, key: str = "", **sent: Any) -> list[httpx.Response]:
        """Send a request over so many connections that every worker gets one."""
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda _: self.ask(method, path, key, **sent), range(CONNECTIONS)))

    def write(self, content: str) -> httpx.Response:
        return self.ask("POST", "/v1/memories", json={"projectId": self.project_id, "content": content})

    def search(self) -> list[tuple[str, bool, list[str]]]:
        """Return how the workers answer the question."""
        body = {"projectId": self.project_id, "query": QUESTION}
        replies = [each.raise_for_status().json() for each in self.everywhere("POST", "/v1/search", json=body)]
        return [
            (reply["search"]["strategy"], reply["search"]["degraded"], [each["content"] for each in reply["memories"]])
            for reply in replies
        ]

    def finds_by_meaning(self) -> bool:
        return self.search() == [("hybrid", False, [FACT])] * CONNECTIONS

    def workers(self) -> set[int]:
        return children(self.started.process.pid, "app.processes.worker")

    def chroma(self) -> set[int]:
        return children(self.started.process.pid, "app.vectors.chroma.child")


def children(pid: int, program: str = "") -> set[int]:
    """Return the child processes of a process that run a program."""
    pids = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_text()
        except OSError:
            continue
        if parent == pid and program in command:
            pids.add(int(folder.name))
    return pids


def soon(condition: Callable[[], bool], seconds: float = SOON_SECONDS) -> bool:
    give_up_at = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.02)
    return True


def are_gone(tokens: dict[int, str]) -> bool:
    return all(start_token(pid) != token for pid, token in tokens.items())


def processes_of(started: Started) -> dict[int, str]:
    """Return the server's processes, with tokens that differ from those of later processes with the same id."""
    return {pid: start_token(pid) for pid in {started.process.pid, *children(started.process.pid)}}


@pytest.fixture(scope="module")
def four_at_home(databases: Databases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Team, Home]]:
    """Four workers without vectors."""
    folder = tmp_path_factory.mktemp("four")
    home = Home(folder, databases.initial_settings(folder))
    with home.serving(workers="4") as started:
        yield Team(started), home
    databases.drop(folder)


@pytest.fixture
def four(four_at_home: tuple[Team, Home]) -> Team:
    """The team on that server."""
    return four_at_home[0]


@pytest.fixture(scope="module", params=[2, 4])
def searching(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Team, int]]:
    """Workers with vectors that know one fact, and how many they are; tests leave them as they were."""
    settings = {"workers": str(request.param), "vectors": "embedded"}
    with serving(tmp_path_factory.mktemp("searching"), **settings) as started:
        team = Team(started)
        assert team.write(FACT).status_code == 201
        yield team, request.param


def test_every_worker_answers_alike(searching: tuple[Team, int]):
    """One key, one index: what one worker wrote, all find by its meaning."""
    team, count = searching
    assert team.started.printed.count("export URL=") == 1
    assert soon(team.finds_by_meaning), team.search()
    assert (len(team.workers()), len(team.chroma())) == (count, 1)
    assert {reply.json()["state"] for reply in team.everywhere("GET", "/v1/vectors/status")} == {"ready"}


def test_a_repair_that_one_worker_is_asked_for_is_done_once(searching: tuple[Team, int]):
    """By the parent, and every worker reports its progress."""
    team, _ = searching
    assert soon(team.finds_by_meaning)

    operation = team.ask("POST", "/v1/vectors/rebuild", json={}).json()["operation"]

    path = f"/v1/operations/{operation['id']}"
    assert soon(lambda: team.ask("GET", path).json()["operation"]["status"] == "done")
    assert {reply.json()["operation"]["status"] for reply in team.everywhere("GET", path)} == {"done"}
    assert soon(team.finds_by_meaning)


def test_a_killed_chroma_is_replaced_for_every_worker(searching: tuple[Team, int]):
    """The first worker that misses it has the parent start another, and all learn its address."""
    team, _ = searching
    assert soon(team.finds_by_meaning)
    (killed,) = team.chroma()

    os.kill(killed, signal.SIGKILL)

    assert soon(team.finds_by_meaning, seconds=15), team.search()
    assert len(team.chroma() - {killed}) == 1


def write_while_workers_are_killed(team: Team, acknowledged: list[str]) -> None:
    """Write over sixteen connections and kill a worker meanwhile, twice; clients reconnect."""

    def write(first: int) -> None:
        with team.client() as http:
            for number in range(first, WRITES, WRITERS):
                body = {"projectId": team.project_id, "content": f"note {number}"}
                with suppress(httpx.TransportError):
                    if http.post("/v1/memories", json=body).status_code == 201:
                        acknowledged.append(body["content"])

    with ThreadPoolExecutor(WRITERS) as pool:
        written = [pool.submit(write, first) for first in range(WRITERS)]
        for share in (0.2, 0.5):
            assert soon(lambda share=share: len(acknowledged) > WRITES * share and len(team.workers()) == 2)
            os.kill(min(team.workers()), signal.SIGKILL)
        for each in written:
            each.result()


def test_a_killed_worker_is_replaced_and_nothing_acknowledged_is_lost(home: Home):
    """Each acknowledged write is stored once, each other write at most once."""
    acknowledged: list[str] = []
    with home.serving(workers="2") as started:
        team = Team(started)
        assert soon(lambda: len(team.workers()) == 2)
        before = team.workers()

        write_while_workers_are_killed(team, acknowledged)

        assert soon(lambda: len(team.workers()) == 2)
        assert team.workers() != before
        contents = stored(started, started.exported["KEY"])

    assert len(acknowledged) >= WRITES - 2 * WRITERS
    assert [content for content in acknowledged if contents[content] != 1] == []
    assert [content for content, times in contents.items() if times != 1] == []


def test_an_acknowledged_write_is_visible_to_every_worker_at_once(four: Team):
    """A thousand writes over one connection, each read over another one immediately."""
    with four.client() as writing:
        readers = [four.client() for _ in range(CONNECTIONS)]
        unseen = 0
        for number in range(1_000):
            body = {"projectId": four.project_id, "content": f"visible {number}"}
            memory_id = writing.post("/v1/memories", json=body).json()["memory"]["id"]
            unseen += readers[number % CONNECTIONS].get(f"/v1/memories/{memory_id}").status_code != 200
        for reader in readers:
            reader.close()

    assert unseen == 0


def test_keys_and_tokens_work_with_all_workers_until_they_are_revoked(four: Team):
    """All workers use the same signing secret, and read the key's row on every request."""
    made = four.ask("POST", "/v1/keys", json={}).json()
    key = made["apiKey"]
    token = four.ask("POST", "/v1/auth/token", key, json={}).json()["accessToken"]
    assert {reply.status_code for each in (key, token) for reply in four.everywhere("GET", "/v1/memories", each)} == {
        200
    }

    four.ask("DELETE", f"/v1/keys/{made['id']}")

    refused = {reply.status_code for each in (key, token) for reply in four.everywhere("GET", "/v1/memories", each)}
    assert refused == {401}


def test_one_idempotency_key_creates_one_memory(four: Team):
    """Sent to all workers at the same time."""
    body = {"projectId": four.project_id, "content": "once"}
    headers = {"Idempotency-Key": "the-same"}
    with ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(four.ask, "POST", "/v1/memories", json=body, headers=headers) for _ in range(CONNECTIONS)]
        replies = [each.result() for each in sent]

    made = {reply.json()["memory"]["id"] for reply in replies if reply.is_success}
    assert len(made) == 1
    assert {reply.status_code for reply in replies} <= {200, 201, 409}


def test_limits_hold_for_all_workers_together(home: Home):
    """At most the limit and a tenth of it per worker, as documented."""
    with home.serving(slow_clock=True, workers="4", rate_limit_per_min="100") as started:
        team = Team(started)
        team.everywhere("GET", "/healthz")  # all of them serve
        with ThreadPoolExecutor(8) as pool:
            codes = Counter(
                reply.status_code for reply in pool.map(lambda _: team.ask("GET", "/v1/memories"), range(250))
            )

    assert set(codes) == {200, 429}
    assert 100 <= codes[200] <= 100 + 4 * 10


def test_every_worker_serves_the_metrics_of_the_whole_server(four_at_home: tuple[Team, Home]):
    """Each worker returns the same sum, which includes what a killed worker had counted."""
    four, home = four_at_home
    with home.database() as database:
        operator = make_key(database, server_owner(), scopes=(SERVER_ADMIN,))
    unknown = 'cmem_requests_total{method="GET",path="unmatched",status="404"} '

    def counted() -> set[float]:
        texts = [reply.text for reply in four.everywhere("GET", "/metrics", operator)]
        return {float(line.removeprefix(unknown)) for text in texts for line in text.splitlines() if unknown in line}

    # a request is counted when it is over, which may be after its reply has been read
    four.everywhere("GET", "/no/such/page")
    assert soon(lambda: counted() == {CONNECTIONS})

    os.kill(min(four.workers()), signal.SIGKILL)
    assert soon(lambda: len(four.workers()) == 4)
    four.everywhere("GET", "/no/such/page")

    assert soon(lambda: counted() == {2 * CONNECTIONS})


def test_it_stops_in_time_with_an_open_stream_and_leaves_no_process(tmp_path: Path):
    """SIGTERM to the parent stops all of them; the database is intact."""
    with serving(tmp_path, workers="2", vectors="embedded") as started:
        team = Team(started)
        text = " ".join(f"word{each}" for each in range(30_000))
        for number in range(10):
            batch = [{"projectId": team.project_id, "content": f"{number} {each} {text}"} for each in range(7)]
            team.ask("POST", "/v1/memories/batch", json=batch).raise_for_status()
        tokens = processes_of(started)
        with closing(http.client.HTTPConnection(urlsplit(started.url).netloc, timeout=30)) as reading:
            headers = {"Authorization": f"Bearer {started.exported['KEY']}"}
            reading.request("GET", f"/v1/projects/{team.project_id}/export", headers=headers)
            assert reading.getresponse().read(10)
            began = time.monotonic()
            started.process.send_signal(signal.SIGTERM)
            code = started.process.wait(timeout=30)

    assert time.monotonic() - began < 10
    assert code in (0, -signal.SIGTERM)
    assert len(tokens) == 4
    assert are_gone(tokens)
    with closing(Database(f"sqlite:///{tmp_path / 'cmem.db'}")) as database:
        assert fulltext_check.faults(database) == []


def test_all_processes_stop_when_the_parent_is_killed(tmp_path: Path):
    """The workers and the Chroma child notice it; the folder is free for the next server."""
    with serving(tmp_path, workers="2", vectors="embedded") as started:
        assert soon(lambda: len(processes_of(started)) == 4)
        tokens = processes_of(started)
        started.process.kill()

        assert soon(lambda: are_gone(tokens), seconds=10)

    with serving(tmp_path, workers="2", vectors="embedded") as again:
        assert "KEY" not in again.exported


def test_a_port_of_other_workers_is_in_use(four: Team, tmp_path: Path):
    """Workers share their port only with each other."""
    port = four.started.url.rsplit(":", 1)[1]
    command, environment = serve_command(tmp_path, "--port", port, "--workers", "2")
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: Cannot listen on 127.0.0.1:{port}: Address already in use")
    assert len(done.stderr.splitlines()) == 1


def test_a_worker_that_exits_with_an_error_is_not_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Its replacement would fail too: the server stops and says so, after the delay that prevents a restart loop."""
    monkeypatch.setattr(supervisor.sys, "executable", "/bin/false")
    monkeypatch.setattr(supervisor, "_RESTART_DELAY_SECONDS", 0.3)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        workers = supervisor.Supervisor(Settings(data_dir=tmp_path), [listener], None, tmp_path)
        workers.start_missing()
        workers.start_missing()  # too early to look: nothing happens
        time.sleep(supervisor._RESTART_DELAY_SECONDS + 0.1)

        with pytest.raises(click.ClickException, match=r"^Worker exited with an error; see the log\.$"):
            workers.start_missing()


def test_a_server_whose_clock_is_slow_is_still_in_its_minute(tmp_path: Path):
    """What tests of limits rely on: no calendar minute ends while they run, in any worker."""
    start_ms = slow_clock.minute_start_ms()
    code = (
        "from tests.processes import slow_clock; slow_clock.in_worker(); from app.clock import now_ms; print(now_ms())"
    )
    environment = {"PATH": os.environ["PATH"], "SLOW_CLOCK_START_MS": str(start_ms - 600_000)}
    done = subprocess.run([sys.executable, "-c", code], env=environment, cwd=ROOT, capture_output=True, check=True)

    assert start_ms - 600_000 < int(done.stdout) < start_ms - 540_000
