"""`serve --workers N`: several processes that answer as one, and end as one."""

import http.client
import os
import signal
import socket
import subprocess
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
from tests.processes.test_crash import stored
from tests.serving import ROOT, Home, Started, serve_command, serving

CONNECTIONS = 32
"""The kernel spreads them: that one of four workers gets none of them happens once in 2,500 runs."""
SOON_SECONDS = 30
WRITES, WRITERS = 1_600, 16
FACT = "The payment gateway waits three seconds for the bank."
QUESTION = "how long until the financial institution replies?"


@dataclass(frozen=True)
class Team:
    """The first team of a server, by connections that are made anew or kept."""

    started: Started

    @property
    def project_id(self) -> str:
        return self.started.exported["PROJECT"]

    def client(self, key: str = "") -> httpx.Client:
        headers = {"Authorization": f"Bearer {key or self.started.exported['KEY']}"}
        # verify=False: plain HTTP needs no certificates, and reading them takes longer than the request
        return httpx.Client(base_url=self.started.url, headers=headers, trust_env=False, verify=False, timeout=30)

    def ask(self, method: str, path: str, key: str = "", **sent: Any) -> httpx.Response:
        """Send a request over a connection of its own."""
        with self.client(key) as http:
            return http.request(method, path, **sent)

    def everywhere(self, method: str, path: str, key: str = "", **sent: Any) -> list[httpx.Response]:
        """Send a request again and again, until every worker has had it."""
        with ThreadPoolExecutor(4) as pool:
            return list(pool.map(lambda _: self.ask(method, path, key, **sent), range(CONNECTIONS)))

    def write(self, content: str) -> httpx.Response:
        return self.ask("POST", "/v1/memories", json={"projectId": self.project_id, "content": content})

    def search(self) -> list[tuple[str, bool, list[str]]]:
        """How every worker answers the question."""
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
    """The processes that one has started, of those that run a program."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((folder / "stat").read_text().rpartition(")")[2].split()[1])
            command = (folder / "cmdline").read_text()
        except OSError:
            continue
        if parent == pid and program in command:
            found.add(int(folder.name))
    return found


def soon(condition: Callable[[], bool], seconds: float = SOON_SECONDS) -> bool:
    give_up_at = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > give_up_at:
            return False
        time.sleep(0.1)
    return True


def wait_for_a_minute_with(*, seconds_left: float) -> None:
    left = 60 - time.time() % 60
    time.sleep(left if left < seconds_left else 0)


def are_gone(tokens: dict[int, str]) -> bool:
    return all(start_token(pid) != token for pid, token in tokens.items())


def living(started: Started) -> dict[int, str]:
    """The server's processes, with what tells each from a later one of the same number."""
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
    """The team that they serve."""
    return four_at_home[0]


@pytest.mark.parametrize("count", [2, 4])
def test_every_worker_answers_alike(tmp_path: Path, count: int):
    """One key, one index: what one worker wrote, all find by its meaning."""
    with serving(tmp_path, workers=str(count), vectors="embedded") as started:
        team = Team(started)
        assert started.printed.count("export URL=") == 1
        assert team.write(FACT).status_code == 201
        assert soon(team.finds_by_meaning), team.search()
        assert (len(team.workers()), len(team.chroma())) == (count, 1)
        assert {reply.json()["state"] for reply in team.everywhere("GET", "/v1/vectors/status")} == {"ready"}


def test_a_repair_that_one_worker_is_asked_for_is_done_once(tmp_path: Path):
    """By the parent, and every worker tells how far it is."""
    with serving(tmp_path, workers="2", vectors="embedded") as started:
        team = Team(started)
        team.write(FACT)
        assert soon(team.finds_by_meaning)

        asked = team.ask("POST", "/v1/vectors/rebuild", json={}).json()["operation"]

        path = f"/v1/operations/{asked['id']}"
        assert soon(lambda: team.ask("GET", path).json()["operation"]["status"] == "done")
        assert {reply.json()["operation"]["status"] for reply in team.everywhere("GET", path)} == {"done"}
        assert soon(team.finds_by_meaning)


def test_chroma_killed_is_back_for_every_worker(tmp_path: Path):
    """Whoever misses it first has the parent start another, and all learn where that one answers."""
    with serving(tmp_path, workers="4", vectors="embedded") as started:
        team = Team(started)
        team.write(FACT)
        assert soon(team.finds_by_meaning)
        (killed,) = team.chroma()

        os.kill(killed, signal.SIGKILL)

        assert soon(team.finds_by_meaning, seconds=15), team.search()
        assert len(team.chroma() - {killed}) == 1


def write_while_workers_are_killed(team: Team, acknowledged: list[str]) -> None:
    """Write over sixteen connections, and kill a worker in their midst, twice; whoever loses one makes another."""

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
    """What a client was told is there once; what it was not told is there at most once."""
    acknowledged: list[str] = []
    with home.serving(workers="2") as started:
        team = Team(started)
        assert soon(lambda: len(team.workers()) == 2)
        before = team.workers()

        write_while_workers_are_killed(team, acknowledged)

        assert soon(lambda: len(team.workers()) == 2)
        assert team.workers() != before
        found = stored(started, started.exported["KEY"])

    assert len(acknowledged) >= WRITES - 2 * WRITERS
    assert [content for content in acknowledged if found[content] != 1] == []
    assert [content for content, times in found.items() if times != 1] == []


def test_what_was_acknowledged_is_seen_by_every_worker_at_once(four: Team):
    """A thousand writes on one connection, each read on another right after."""
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


def test_a_key_or_token_opens_all_workers_and_a_revoked_one_none(four: Team):
    """All sign with one secret, and read the key's row at every request."""
    made = four.ask("POST", "/v1/keys", json={}).json()
    key = made["apiKey"]
    token = four.ask("POST", "/v1/auth/token", key, json={}).json()["accessToken"]
    assert {reply.status_code for each in (key, token) for reply in four.everywhere("GET", "/v1/memories", each)} == {
        200
    }

    four.ask("DELETE", f"/v1/keys/{made['id']}")

    refused = {reply.status_code for each in (key, token) for reply in four.everywhere("GET", "/v1/memories", each)}
    assert refused == {401}


def test_one_idempotency_key_makes_one_memory_whoever_is_asked(four: Team):
    """All at once, at all workers."""
    body = {"projectId": four.project_id, "content": "once"}
    headers = {"Idempotency-Key": "the-same"}
    with ThreadPoolExecutor(8) as pool:
        sent = [pool.submit(four.ask, "POST", "/v1/memories", json=body, headers=headers) for _ in range(CONNECTIONS)]
        replies = [each.result() for each in sent]

    made = {reply.json()["memory"]["id"] for reply in replies if reply.is_success}
    assert len(made) == 1
    assert {reply.status_code for reply in replies} <= {200, 201, 409}


def test_limits_hold_for_all_workers_together(home: Home):
    """At most the limit and a tenth of it per worker, as it is promised."""
    with home.serving(workers="4", rate_limit_per_min="100") as started:
        team = Team(started)
        team.everywhere("GET", "/healthz")  # all of them serve
        wait_for_a_minute_with(seconds_left=25)
        with ThreadPoolExecutor(8) as pool:
            codes = Counter(
                reply.status_code for reply in pool.map(lambda _: team.ask("GET", "/v1/memories"), range(250))
            )

    assert set(codes) == {200, 429}
    assert 100 <= codes[200] <= 100 + 4 * 10


def test_metrics_are_those_of_the_whole_server_whoever_is_scraped(four_at_home: tuple[Team, Home]):
    """Each worker tells the same sum, and what a killed one has counted stays."""
    four, home = four_at_home
    with home.database() as database:
        operator = make_key(database, server_owner(), scopes=(SERVER_ADMIN,))
    unknown = 'cmem_requests_total{method="GET",path="unmatched",status="404"} '

    def counted() -> set[float]:
        texts = [reply.text for reply in four.everywhere("GET", "/metrics", operator)]
        return {float(line.removeprefix(unknown)) for text in texts for line in text.splitlines() if unknown in line}

    four.everywhere("GET", "/no/such/page")
    assert counted() == {CONNECTIONS}

    os.kill(min(four.workers()), signal.SIGKILL)
    assert soon(lambda: len(four.workers()) == 4)
    four.everywhere("GET", "/no/such/page")

    assert counted() == {2 * CONNECTIONS}


def test_it_ends_in_time_with_a_stream_open_and_leaves_nobody(tmp_path: Path):
    """SIGTERM to the parent ends all; the database is whole."""
    with serving(tmp_path, workers="2", vectors="embedded") as started:
        team = Team(started)
        text = " ".join(f"word{each}" for each in range(30_000))
        for number in range(10):
            batch = [{"projectId": team.project_id, "content": f"{number} {each} {text}"} for each in range(7)]
            team.ask("POST", "/v1/memories/batch", json=batch).raise_for_status()
        tokens = living(started)
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


def test_all_end_with_a_parent_that_was_killed(tmp_path: Path):
    """The workers and the Chroma child notice; the folder is free for the next server."""
    with serving(tmp_path, workers="2", vectors="embedded") as started:
        assert soon(lambda: len(living(started)) == 4)
        tokens = living(started)
        started.process.kill()

        assert soon(lambda: are_gone(tokens), seconds=10)

    with serving(tmp_path, workers="2", vectors="embedded") as again:
        assert "KEY" not in again.exported


def test_a_port_that_other_workers_listen_on_is_taken(four: Team, tmp_path: Path):
    """Sockets that share a port do so among themselves only."""
    port = four.started.url.rsplit(":", 1)[1]
    command, environment = serve_command(tmp_path, "--port", port, "--workers", "2")
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert done.returncode == 1
    assert done.stderr.startswith(f"Error: cannot listen on 127.0.0.1:{port}: Address already in use")
    assert len(done.stderr.splitlines()) == 1


def test_a_worker_that_fails_by_itself_is_not_replaced_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Another one would fare no better: the server ends and says so."""
    monkeypatch.setattr(supervisor.sys, "executable", "/bin/false")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        hands = supervisor.Crew(Settings(data_dir=tmp_path), [listener], None, tmp_path)
        hands.fill()
        time.sleep(supervisor._REPLACED_AFTER_SECONDS + 0.1)

        with pytest.raises(click.ClickException, match="could not go on"):
            hands.fill()
