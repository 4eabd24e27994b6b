"""/metrics: what Prometheus scrapes, for whoever administers the server."""

import re
import time
from collections.abc import Callable, Iterator

import httpx
import pytest

from app.caller import SERVER_ADMIN, server_owner
from tests.conftest import Server, Tenant, client, make_key, make_tenant
from tests.stores import Stores


@pytest.fixture
def operator(server: Server) -> Iterator[httpx.Client]:
    """A client of whoever administers the server."""
    with client(server, make_key(server.database, server_owner(), scopes=(SERVER_ADMIN,))) as http:
        yield http


@pytest.fixture
def scraped(operator: httpx.Client) -> Callable[[str], float]:
    """Return the sum of the samples whose line begins with a pattern."""

    def total(pattern: str) -> float:
        text = operator.get("/metrics").text
        return sum(float(line.rsplit(" ", 1)[1]) for line in text.splitlines() if re.match(pattern, line))

    return total


def test_it_speaks_the_format_of_prometheus(operator: httpx.Client):
    """Text, with a type for each family."""
    reply = operator.get("/metrics")

    assert (reply.status_code, reply.headers["content-type"].split(";")[0]) == (200, "text/plain")
    assert "# TYPE cmem_requests_total counter" in reply.text


def test_a_teams_key_does_not_open_it(team: Tenant):
    """It tells of every team together."""
    assert team.http.get("/metrics").status_code == 403
    assert httpx.get(str(team.http.base_url) + "/metrics").status_code == 401


def test_requests_are_counted_by_route_and_status(team: Tenant, scraped: Callable[[str], float]):
    """Paths are those of the routes; refusals count as what they are, and unknown paths as one."""
    read = r'cmem_requests_total\{.*path="/v1/memories/\{memory_id\}",status="404"'
    refused = r'cmem_requests_total\{.*path="/v1/teams",status="403"'
    unknown = r'cmem_requests_total\{method="GET",path="unmatched",status="404"'
    before = scraped(read), scraped(refused), scraped(unknown)
    for _ in range(3):
        team.http.get("/v1/memories/unknown")
    team.http.post("/v1/teams", json={"name": "x"})

    team.http.get("/v1/no/such/route")
    team.http.get("/v1/neither/this")

    assert (scraped(read) - before[0], scraped(refused) - before[1], scraped(unknown) - before[2]) == (3, 1, 2)


def test_searches_are_counted_by_how_they_were_answered(team: Tenant, scraped: Callable[[str], float]):
    """So that a degraded index shows."""
    by_words = r'cmem_searches_total\{degraded="false",reason="",strategy="fts"'
    before = scraped(by_words)
    team.http.post("/v1/search", json={"projectId": team.project_id, "query": "gateway"})

    assert scraped(by_words) - before == 1


def test_slow_checks_happen_once_per_key(team: Tenant, scraped: Callable[[str], float]):
    """The second request of a key costs none."""
    team.http.get("/v1/projects")
    before = scraped("cmem_argon2_checks_total")
    team.http.get("/v1/projects")

    assert scraped("cmem_argon2_checks_total") == before


def test_the_outbox_and_the_files_show(stores: Stores, team: Tenant, scraped: Callable[[str], float]):
    """Depth, age and bytes; the log of a database server is its own."""
    names = "cmem_memories", "cmem_outbox_pending", "cmem_outbox_failed"
    before = [scraped(f"{name} ") for name in names]
    team.post_memory(content="it waits, for vectors are off")

    assert [scraped(f"{name} ") - old for name, old in zip(names, before, strict=True)] == [1, 1, 0]
    assert scraped("cmem_database_bytes ") > 100_000
    assert (scraped("cmem_wal_bytes ") > 0) == (stores.dialect == "sqlite")
    assert scraped("cmem_outbox_oldest_seconds ") >= 0


def test_embedding_shows_as_totals_that_grow(start_server: Callable[..., Server]):
    """Memories, their texts and the seconds that these took: rates are Prometheus' own work."""
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
        grown = [now - old for now, old in zip(totals(), before, strict=True)]

    assert grown[:2] == [1, 2]
    assert 0 < grown[2] < 30
