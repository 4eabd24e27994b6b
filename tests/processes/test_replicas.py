"""Two replicas on one PostgreSQL and one Chroma server act as one server, whatever happens to either."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest

from app.vectors.sync.mirror import BATCH_MEMORIES, LEASE_MS
from tests import chroma_server, embedding_model
from tests.databases import PostgresqlDatabases
from tests.embedding_model import Endpoint
from tests.postgresql import SERVER, Cluster
from tests.serving import ROOT, Started, slow_clock_program, started_by

IS_STRESS = bool(os.environ.get("CMEM_STRESS"))
WRITES = 2_000 if IS_STRESS else 300
WRITERS = 8
BATCH = 3
PATIENCE_SECONDS = 600.0 if IS_STRESS else 120.0
RATE, QUOTA = 120, 60
pytestmark = pytest.mark.process


@dataclass
class Replicas:
    """Two servers that share everything but their process; one that is killed is replaced at once."""

    cluster: Cluster
    database: str
    environment: dict[str, str]
    folder: Path
    program: list[str]
    alive: list[Started] = field(default_factory=list)
    running: ExitStack = field(default_factory=ExitStack)
    key: str = ""
    project_id: str = ""

    def start(self) -> Started:
        """Start another one, with its own data folder."""
        number = next(_NUMBERS)
        environment = {**self.environment, "CMEM_DATA_DIR": str(self.folder / f"replica{number}")}
        command = [*self.program, "serve", "--port", "0"]
        return self.running.enter_context(started_by(command, environment, ROOT))

    def kill(self, number: int) -> None:
        """Kill one as a power cut does, and replace it."""
        os.kill(self.alive[number].process.pid, signal.SIGKILL)
        self.alive[number] = self.start()

    def client(self, number: int, key: str | None = None) -> httpx.Client:
        """Return a client of one of them."""
        headers = {"Authorization": f"Bearer {key or self.key}"}
        return httpx.Client(base_url=self.alive[number].url, headers=headers, timeout=30, trust_env=False)

    def query(self, statement: str) -> list[tuple[Any, ...]]:
        """Run SQL as the server's role, for every team."""
        with self.cluster.connect(SERVER, self.database) as connection:
            connection.execute("SET cmem.team_id = '*'")
            cursor = connection.execute(statement.encode())
            return cursor.fetchall() if cursor.description else []


_NUMBERS = itertools.count()


@pytest.fixture
def endpoint() -> Iterator[Endpoint]:
    with embedding_model.serving() as serving:
        yield serving


@contextmanager
def replicas_of(cluster: Cluster, folder: Path, *, slow_clock: bool = False, **settings: str) -> Iterator[Replicas]:
    """Start two servers on a new database."""
    program = slow_clock_program() if slow_clock else [sys.executable, "-m", "app"]
    url = PostgresqlDatabases(cluster).settings(folder)
    environment = {
        "PATH": os.environ["PATH"],
        "CMEM_DATABASE_URL": url["database_url"],
        "CMEM_DATABASE_ADMIN_URL": url["database_admin_url"],
        "CMEM_JWT_SECRET": "b9c1f7a2-4d35-48e6-a0b8-7c2d9e1f3a64",
        "CMEM_LOG_LEVEL": "ERROR",
        **settings,
    }
    database = url["database_url"].split("@/")[1].split("?")[0]
    made = Replicas(cluster, database, environment, folder, program)
    with made.running:
        made.alive = [made.start(), made.start()]
        made.key, made.project_id = (made.alive[0].exported[name] for name in ("KEY", "PROJECT"))
        yield made


# ---- mixed writes through both


class Writer:
    """Writes of all kinds, each retried until a replica acknowledges it. Records what must be stored then."""

    def __init__(self, replicas: Replicas, number: int, count: int, progress: Callable[[], None]) -> None:
        self._replicas = replicas
        self._number = number
        self._count = count
        self._progress = progress
        self.memories: dict[str, str] = {}
        self.sessions: set[str] = set()
        self.events: set[str] = set()
        self.unexpected: list[str] = []

    def run(self) -> None:
        """Do all of them, one after the other."""
        kinds = (
            self._add,
            self._add,
            self._change,
            self._add_batch,
            self._start_session,
            self._add_event,
            self._remove,
        )
        for turn in range(self._count):
            kinds[turn % len(kinds)](f"writer {self._number} turn {turn}")
            self._progress()

    def _add(self, name: str) -> None:
        reply = self._until_done("POST", "memories", name, {**self._project, "content": name})
        self.memories[reply["memory"]["id"]] = name

    def _add_batch(self, name: str) -> None:
        items = [{**self._project, "content": f"{name} item {place}"} for place in range(BATCH)]
        reply = self._until_done("POST", "memories/batch", name, items)
        self.memories |= {memory["id"]: memory["content"] for memory in reply["memories"]}

    def _change(self, name: str) -> None:
        memory_id = next(reversed(self.memories))
        self._until_done("PATCH", f"memories/{memory_id}", name, {"text": name, "narrative": name})
        self.memories[memory_id] = name

    def _remove(self, name: str) -> None:
        memory_id = next(iter(self.memories))
        self._until_done("DELETE", f"memories/{memory_id}", name, None)
        del self.memories[memory_id]

    def _start_session(self, name: str) -> None:
        reply = self._until_done("POST", "sessions/start", name, {**self._project, "contentSessionId": name})
        self.sessions.add(reply["session"]["id"])

    def _add_event(self, name: str) -> None:
        event = {"eventType": name, "sourceType": "api", "occurredAtEpoch": 1, "payload": {"name": name}}
        reply = self._until_done("POST", "events", name, {**self._project, **event})
        self.events.add(reply["event"]["id"])

    @property
    def _project(self) -> dict[str, str]:
        return {"projectId": self._replicas.project_id}

    def _until_done(self, method: str, path: str, name: str, body: Any) -> Any:
        """Ask the replicas in turn, with the same idempotency key; return the reply that acknowledges the write."""
        give_up_at = time.monotonic() + PATIENCE_SECONDS
        for attempt in itertools.count():
            assert time.monotonic() < give_up_at, f"{method} {path} was never acknowledged"
            reply = self._ask(method, path, name, body, (self._number + attempt) % 2)
            if reply is not None and reply.is_success:
                return reply.json()
            if reply is not None and attempt and method == "DELETE" and reply.status_code == 404:
                return None  # done by an attempt whose reply was lost
            if reply is not None and (reply.status_code != 503 or not reply.headers.get("Retry-After")):
                self.unexpected.append(f"{method} {path}: {reply.status_code} {reply.text[:200]}")
            time.sleep(0.1)
        raise AssertionError

    def _ask(self, method: str, path: str, name: str, body: Any, replica: int) -> httpx.Response | None:
        try:
            with self._replicas.client(replica) as http:
                return http.request(
                    method, f"/v1/{path}", json=body, headers={"Idempotency-Key": name.replace(" ", "-")}
                )
        except httpx.TransportError:
            return None


class Progress:
    """How many writes have been acknowledged so far."""

    def __init__(self) -> None:
        self._condition = threading.Condition()
        self._done = 0

    def __call__(self) -> None:
        with self._condition:
            self._done += 1
            self._condition.notify_all()

    def wait_for(self, count: int) -> None:
        with self._condition:
            assert self._condition.wait_for(lambda: self._done >= count, timeout=PATIENCE_SECONDS)


def everything(replicas: Replicas, noun: str, number: int) -> list[dict[str, Any]]:
    """Return all items of a kind, page by page."""
    found: list[dict[str, Any]] = []
    cursor: dict[str, str] | None = {}
    with replicas.client(number) as http:
        while cursor is not None:
            page = http.get(f"/v1/{noun}", params={"limit": 200, **cursor}).json()
            found += page[noun]
            cursor = {"cursor": page["nextCursor"]} if page["nextCursor"] else None
    return found


def wait_until_mirrored(replicas: Replicas) -> None:
    """Wait until nothing is pending. What the killed replica had claimed is free when its lease expires."""
    deadline = time.monotonic() + LEASE_MS / 1000 + 60
    if not IS_STRESS:  # do not wait two minutes for that in every run
        replicas.query("UPDATE vector_outbox SET claimed_until_epoch = 0 WHERE claimed_by IS NOT NULL")
    while replicas.query("SELECT 1 FROM vector_outbox LIMIT 1"):
        assert time.monotonic() < deadline, replicas.query("SELECT * FROM vector_outbox LIMIT 3")
        time.sleep(0.2)


def verified(replicas: Replicas) -> Any:
    """Return what `vectors verify --dry-run` says."""
    command = [sys.executable, "-m", "app", "vectors", "verify", "--dry-run", "--json"]
    environment = {**replicas.environment, "CMEM_DATA_DIR": str(replicas.folder / "operator")}
    done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_acknowledged_write_is_stored_once_after_a_kill_and_a_restart(
    own_cluster: Cluster, endpoint: Endpoint, tmp_path: Path
):
    """A replica is killed and the database restarted during mixed writes: nothing is lost, doubled or left over."""
    progress = Progress()
    with (
        chroma_server.running(tmp_path / "chroma") as chroma_url,
        replicas_of(
            own_cluster,
            tmp_path,
            CMEM_VECTORS="http",
            CMEM_CHROMA_URL=chroma_url,
            CMEM_EMBEDDER="openai",
            CMEM_EMBEDDER_URL=endpoint.url,
            CMEM_EMBEDDER_MODEL="counting",
        ) as replicas,
    ):
        writers = [Writer(replicas, number, WRITES // WRITERS, progress) for number in range(WRITERS)]
        with ThreadPoolExecutor(WRITERS) as pool:
            working = [pool.submit(writer.run) for writer in writers]
            progress.wait_for(WRITES // 3)
            replicas.kill(0)
            progress.wait_for(WRITES * 2 // 3)
            own_cluster.restart()
            for each in working:
                each.result(timeout=PATIENCE_SECONDS)
        stored = everything(replicas, "memories", 0)
        sessions = Counter(session["id"] for session in everything(replicas, "sessions", 1))
        events = Counter(event["id"] for event in everything(replicas, "events", 1))
        wait_until_mirrored(replicas)
        report = verified(replicas)

    assert [line for writer in writers for line in writer.unexpected] == []
    expected = {memory_id: content for writer in writers for memory_id, content in writer.memories.items()}
    assert {memory["id"]: memory["content"] for memory in stored} == expected
    assert max(Counter(memory["content"] for memory in stored).values()) == 1
    assert sessions == Counter(session for writer in writers for session in writer.sessions)
    assert events == Counter(event for writer in writers for event in writer.events)
    differing = ("missing", "stale", "ghost", "duplicate", "pending")
    assert {name: report[name] for name in differing} == dict.fromkeys(differing, 0)
    # embedded twice at most: one batch of the killed replica, and one of each replica when the database restarted
    assert sum(endpoint.texts.values()) - len(endpoint.texts) <= 3 * BATCH_MEMORIES


# ---- what both must agree on


@pytest.fixture(scope="module")
def pair(own_cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Replicas]:
    """Two replicas that limit the requests of each key."""
    limits = {"CMEM_RATE_LIMIT_PER_MIN": str(RATE), "CMEM_MONTHLY_REQUEST_CAP": str(QUOTA)}
    folder = tmp_path_factory.mktemp("pair")
    with replicas_of(own_cluster, folder, slow_clock=True, CMEM_VECTORS="off", **limits) as started:
        yield started


@pytest.fixture
def key(pair: Replicas) -> dict[str, Any]:
    """A key that only this test uses."""
    with pair.client(0) as http:
        made = http.post("/v1/keys", json={"name": "test", "scopes": ["*"]})
        assert made.status_code == 201, made.text
        reply: dict[str, Any] = made.json()
    return reply


def test_a_key_revoked_by_one_replica_is_refused_by_the_other_at_its_next_request(pair: Replicas, key: dict[str, Any]):
    """Both have used it before."""
    with pair.client(0, key["apiKey"]) as first, pair.client(1, key["apiKey"]) as second, pair.client(0) as owner:
        assert [http.get("/v1/memories").status_code for http in (first, second, first, second)] == [200] * 4
        assert owner.delete(f"/v1/keys/{key['id']}").status_code == 200
        assert [http.get("/v1/memories").status_code for http in (second, first)] == [401, 401]


def test_an_idempotency_key_works_across_replicas(pair: Replicas, key: dict[str, Any]):
    """One after the other, and at the same time."""
    body = {"projectId": pair.project_id, "content": "once"}

    def post(name: str, number: int) -> httpx.Response:
        with pair.client(number, key["apiKey"]) as http:
            return http.post("/v1/memories", json={**body, "content": name}, headers={"Idempotency-Key": name})

    first, second = post("in-turn", 0), post("in-turn", 1)
    assert (second.status_code, second.headers.get("Idempotent-Replayed")) == (201, "true")
    assert first.json()["memory"]["id"] == second.json()["memory"]["id"]
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda number: post("at-once", number % 2), range(8)))
    assert {reply.status_code for reply in replies} == {201}
    assert len({reply.json()["memory"]["id"] for reply in replies}) == 1
    assert sum("Idempotent-Replayed" not in reply.headers for reply in replies) == 1


def test_rate_limit_and_quota_count_the_requests_of_both(pair: Replicas, key: dict[str, Any]):
    """A key has one limit, of which each replica may grant a tenth before the other knows."""
    statuses = []
    with pair.client(0, key["apiKey"]) as first, pair.client(1, key["apiKey"]) as second:
        for http in itertools.islice(itertools.cycle((first, second)), RATE + RATE // 2):
            statuses.append(http.get("/v1/memories").status_code)
    counts = Counter(statuses)
    assert set(counts) == {200, 402, 429}
    assert QUOTA <= counts[200] <= QUOTA + 2 * (QUOTA // 10)
    assert RATE <= counts[200] + counts[402] <= RATE + 2 * (RATE // 10)
