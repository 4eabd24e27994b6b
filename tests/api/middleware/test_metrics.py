"""/metrics: counters and gauges for Prometheus, readable by server administrators only."""

import re
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from app.caller import SERVER_ADMIN, server_owner
from tests.conftest import Server, Tenant, client, make_key, make_tenant
from tests.databases import Databases


@pytest.fixture
def operator(server: Server) -> Iterator[httpx.Client]:
    """A client of the server administrator."""
    with client(server, make_key(server.database, server_owner(), scopes=(SERVER_ADMIN,))) as http:
        yield http


@pytest.fixture
def total(operator: httpx.Client) -> Callable[[str], float]:
    """Return the sum of the samples whose lines start with a pattern."""

    def sum_samples(pattern: str) -> float:
        text = operator.get("/metrics").text
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(pattern, line))

    return sum_samples


def test_metrics_are_in_prometheus_text_format(operator: httpx.Client):
    """With a type for each family."""
    reply = operator.get("/metrics")

    assert (reply.status_code, reply.headers["content-type"].split(";")[0]) == (200, "text/plain")
    assert "# TYPE cmem_requests_total counter" in reply.text


def test_team_key_may_not_read_metrics(team: Tenant):
    """They cover all teams together."""
    assert team.http.get("/metrics").status_code == 403
    assert httpx.get(str(team.http.base_url) + "/metrics").status_code == 401


def test_requests_are_counted_by_route_and_status(team: Tenant, total: Callable[[str], float]):
    """Errors count with their own status, and unknown paths as one."""
    read = r'cmem_requests_total\{.*path="/v1/memories/\{memory_id\}",status="404"'
    refused = r'cmem_requests_total\{.*path="/v1/teams",status="403"'
    unknown = r'cmem_requests_total\{method="GET",path="unmatched",status="404"'
    before = total(read), total(refused), total(unknown)
    for _ in range(3):
        team.http.get("/v1/memories/unknown")
    team.http.post("/v1/teams", json={"name": "x"})

    team.http.get("/v1/no/such/route")
    team.http.get("/v1/neither/this")

    assert (total(read) - before[0], total(refused) - before[1], total(unknown) - before[2]) == (3, 1, 2)


def test_searches_are_counted_by_strategy(team: Tenant, total: Callable[[str], float]):
    """So a degraded index is visible."""
    by_words = r'cmem_searches_total\{degraded="false",reason="",strategy="fts"'
    before = total(by_words)
    team.http.post("/v1/search", json={"projectId": team.project_id, "query": "gateway"})

    assert total(by_words) - before == 1


def test_slow_hash_check_runs_once_per_key(team: Tenant, total: Callable[[str], float]):
    """The second request with a key needs none."""
    team.http.get("/v1/projects")
    before = total("cmem_argon2_checks_total")
    team.http.get("/v1/projects")

    assert total("cmem_argon2_checks_total") == before


def test_outbox_and_file_sizes_are_gauges(databases: Databases, team: Tenant, total: Callable[[str], float]):
    """Depth, age and bytes; the WAL of a PostgreSQL server is not ours to measure."""
    names = "cmem_memories", "cmem_outbox_pending", "cmem_outbox_failed"
    before = [total(f"{name} ") for name in names]
    team.post_memory(content="vectors are off, so it stays in the outbox")

    assert [total(f"{name} ") - old for name, old in zip(names, before, strict=True)] == [1, 1, 0]
    assert total("cmem_database_bytes ") > 100_000
    assert (total("cmem_wal_bytes ") > 0) == (databases.dialect == "sqlite")
    assert total("cmem_outbox_oldest_seconds ") >= 0


def test_embedding_is_counted_as_totals(start_server: Callable[..., Server]):
    """Memories, their texts and the seconds they took; rates are for Prometheus to compute."""
    server = start_server(vectors="embedded")
    team = make_tenant(server, "a")
    names = "cmem_embedded_memories_total", "cmem_embedded_texts_total", "cmem_embedding_seconds_total"
    with team.http, client(server, make_key(server.database, server_owner(), scopes=(SERVER_ADMIN,))) as http:

        def totals() -> list[float]:
            samples = dict(line.rsplit(" ", 1) for line in http.get("/metrics").text.splitlines() if line[0] != "#")
            return [float(samples[name]) for name in names]

        before = totals()
        team.post_memory(content="The gateway times out.", facts=["After three seconds."])
        deadline = time.monotonic() + 30
        while totals()[0] == before[0] and time.monotonic() < deadline:
            time.sleep(0.05)
        growth = [now - old for now, old in zip(totals(), before, strict=True)]

    assert growth[:2] == [1, 2]
    assert 0 < growth[2] < 30
