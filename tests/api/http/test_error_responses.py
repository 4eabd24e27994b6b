"""Every error has one shape and a stable code; nothing internal is ever sent."""

import http.client
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from app.store.database import Database
from app.store.engines import postgresql
from tests.conftest import Server, Tenant, make_tenant
from tests.databases import Databases
from tests.problems import code_of
from tests.store import raw_writer

INTERNAL = re.compile(r"Traceback|sqlite|SELECT|\.py|/tmp|site-packages|sqlalchemy", re.IGNORECASE)


def failures(team: Tenant) -> dict[tuple[int, str], httpx.Response]:
    """Return one failure of each kind that a working server can produce."""
    http, url = team.http, str(team.http.base_url)
    memory = team.post_memory(content="x").json()["memory"]["id"]
    http.post("/v1/projects", json={"name": "n", "slug": "taken"})
    http.post("/v1/projects", json={"name": "n"}, headers={"Idempotency-Key": "k"})
    return {
        (400, "ValidationError"): http.post("/v1/memories", json={}),
        (401, "Unauthorized"): httpx.get(f"{url}/v1/memories"),
        (403, "Forbidden"): http.get("/v1/memories", params={"projectId": "x"}),
        (404, "NotFound"): http.get("/v1/memories/x"),
        (405, "MethodNotAllowed"): http.put("/v1/memories"),
        (409, "Conflict"): http.post("/v1/projects", json={"name": "n", "slug": "taken"}),
        (409, "IdempotencyMismatch"): http.post("/v1/projects", json={"name": "o"}, headers={"Idempotency-Key": "k"}),
        (412, "PreconditionFailed"): http.delete(f"/v1/memories/{memory}", headers={"If-Match": '"0"'}),
        (413, "PayloadTooLarge"): http.post("/v1/memories", json={"content": "x" * 6_000_000}),
        (415, "UnsupportedMediaType"): http.post("/v1/memories", content=b"x", headers={"content-type": "text/plain"}),
    }


def test_every_failure_is_problem_details_with_its_code(team: Tenant):
    """Status, code, path of the request and request id; nothing internal."""
    for expected, reply in failures(team).items():
        assert code_of(reply) == expected
        assert reply.json()["instance"] == reply.request.url.path
        assert INTERNAL.search(reply.text) is None


def test_unknown_route_is_404_and_unknown_method_is_405(team: Tenant):
    """The 405 lists the supported methods in `Allow`."""
    assert code_of(team.http.get("/v1/nothing")) == (404, "NotFound")
    assert code_of(team.http.get("/")) == (404, "NotFound")
    wrong = team.http.delete("/v1/memories")
    assert code_of(wrong) == (405, "MethodNotAllowed")
    assert {"GET", "POST"} <= set(re.findall(r"\w+", wrong.headers["Allow"]))


def test_401_names_the_authentication_scheme(team: Tenant):
    """It carries `WWW-Authenticate: Bearer`."""
    reply = httpx.get(f"{team.http.base_url}/v1/memories")

    assert reply.headers["WWW-Authenticate"].startswith("Bearer ")


@pytest.mark.parametrize("request_id", ["a", "abc-DEF_9", "x" * 64])
def test_request_id_is_accepted_and_echoed(team: Tenant, request_id: str):
    """It is in the reply, in errors, and in the audit log."""
    reply = team.http.post(
        "/v1/memories", json={"projectId": team.project_id, "content": "x"}, headers={"X-Request-Id": request_id}
    )
    failed = team.http.get("/v1/memories/x", headers={"X-Request-Id": request_id})

    assert (reply.headers["X-Request-Id"], failed.json()["requestId"]) == (request_id, request_id)
    entry = team.http.get("/v1/audit", params={"action": "memory.create"}).json()["audit"][0]
    assert entry["requestId"] == request_id


@pytest.mark.parametrize("request_id", ["", "-a", "a b", "x" * 65, "a/b", "é", "a.b"])
def test_malformed_request_id_is_replaced(team: Tenant, request_id: str):
    """Anything that could break a log line or a header is not accepted."""
    replies = [team.http.get("/v1/info", headers={"X-Request-Id": request_id.encode()}) for _ in range(2)]

    generated = [reply.headers["X-Request-Id"] for reply in replies]
    assert request_id not in generated
    assert generated[0] != generated[1]


@pytest.mark.parametrize("path", ["/v1/memories", "/v1/memories/{id}", "/v1/info", "/healthz", "/v1/memories/x", "/no"])
def test_head_matches_get(team: Tenant, path: str):
    """Same status, same headers, no body."""
    path = path.replace("{id}", team.post_memory(content="x").json()["memory"]["id"])
    got, head = team.http.get(path), team.http.head(path)

    assert (head.status_code, head.content) == (got.status_code, b"")
    for name in ("content-type", "content-length", "etag"):
        assert head.headers.get(name) == got.headers.get(name)


def test_connection_stays_usable_after_head_and_errors(team: Tenant):
    """No stray bytes follow a reply: the next one on the same connection is intact."""
    connection = http.client.HTTPConnection(team.http.base_url.host, team.http.base_url.port)
    headers = {"Authorization": f"Bearer {team.api_key}"}
    statuses = []
    for verb, path in [("HEAD", "/v1/memories"), ("GET", "/v1/no"), ("HEAD", "/v1/no"), ("GET", "/v1/info")] * 3:
        connection.request(verb, path, headers=headers)
        reply = connection.getresponse()
        reply.read()
        statuses.append(reply.status)
    connection.close()

    assert statuses == [200, 404, 404, 200] * 3


def test_every_reply_forbids_sniffing_framing_and_caching(team: Tenant):
    """Successes and errors have the security headers."""
    for path in ("/v1/info", "/v1/no"):
        headers = team.http.get(path).headers
        names = ("x-content-type-options", "x-frame-options", "referrer-policy", "cache-control")
        assert [headers.get(name) for name in names] == ["nosniff", "DENY", "no-referrer", "no-store"]


def test_bug_is_500_without_details(databases: Databases, start_server: Callable[..., Server], tmp_path: Path):
    """An unexpected error is logged, and the reply says nothing about it."""
    server = start_server()
    team = make_tenant(server, "a")
    memory = team.post_memory(content="x").headers["Location"]
    with closing(Database(databases.owner_url(tmp_path))) as owned, owned.write() as connection:
        connection.exec_driver_sql("DROP TABLE memory_sources")

    with closing(team.http):
        reply = team.http.get(f"{memory}/sources")

    assert code_of(reply) == (500, "Internal")
    assert INTERNAL.search(reply.text) is None


LOCKING = {"sqlite": ["BEGIN IMMEDIATE"], "postgresql": ["BEGIN", "LOCK TABLE memory_items IN EXCLUSIVE MODE"]}


def test_locked_database_is_503(
    databases: Databases, start_server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """While another program holds the write lock, writes are 503 with `Retry-After`, and reads still work."""
    monkeypatch.setattr("app.store.engines.sqlite._BUSY_TIMEOUT_MS", 50)
    monkeypatch.setattr(postgresql, "_LIMITS", f"{postgresql._LIMITS}; SET lock_timeout = 2000")
    server = start_server()
    team = make_tenant(server, "a")
    with closing(team.http), closing(raw_writer.connect(databases.owner_url(tmp_path))) as other:
        for statement in LOCKING[databases.dialect]:
            other.run(statement)
        refused, read = team.post_memory(content="x"), team.http.get("/v1/memories")
        other.run("ROLLBACK")
        done = team.post_memory(content="x")

    assert (code_of(refused), read.status_code, done.status_code) == ((503, "Unavailable"), 200, 201)
    assert refused.headers["Retry-After"].isdigit()
    assert INTERNAL.search(refused.text) is None


@pytest.mark.parametrize("verb", ["GET", "PATCH", "DELETE"])
@pytest.mark.parametrize("noun", ["projects", "sessions", "keys"])
def test_id_with_nul_is_not_found(team: Tenant, noun: str, verb: str):
    """A NUL in a path is like any other unknown id."""
    if (noun, verb) == ("sessions", "PATCH"):
        return
    body = {"json": {}} if verb == "PATCH" else {}

    assert team.http.request(verb, f"/v1/{noun}/a%00b", **body).status_code == 404
