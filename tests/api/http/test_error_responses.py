"""Every failure has one shape and a stable code; nothing internal ever leaves the server."""

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
from tests.problems import code_of
from tests.store import raw_writer
from tests.stores import Stores

NEVER = re.compile(r"Traceback|sqlite|SELECT|\.py|/tmp|site-packages|sqlalchemy", re.IGNORECASE)


def failures(team: Tenant) -> dict[tuple[int, str], httpx.Response]:
    """Return one failure of each kind that needs no broken parts."""
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


def test_every_failure_has_its_code_and_the_one_shape(team: Tenant):
    """Problem details with status, code, path of the request and request id; nothing of the inside."""
    for expected, reply in failures(team).items():
        assert code_of(reply) == expected
        assert reply.json()["instance"] == reply.request.url.path
        assert NEVER.search(reply.text) is None


def test_unknown_routes_and_methods_say_so(team: Tenant):
    """404 for no such route, 405 with `Allow` for no such method."""
    assert code_of(team.http.get("/v1/nothing")) == (404, "NotFound")
    assert code_of(team.http.get("/")) == (404, "NotFound")
    wrong = team.http.delete("/v1/memories")
    assert code_of(wrong) == (405, "MethodNotAllowed")
    assert {"GET", "POST"} <= set(re.findall(r"\w+", wrong.headers["Allow"]))


def test_a_refused_credential_says_which_scheme_is_wanted(team: Tenant):
    """401 carries `WWW-Authenticate: Bearer`."""
    reply = httpx.get(f"{team.http.base_url}/v1/memories")

    assert reply.headers["WWW-Authenticate"].startswith("Bearer ")


@pytest.mark.parametrize("given", ["a", "abc-DEF_9", "x" * 64])
def test_a_request_id_is_taken_and_echoed(team: Tenant, given: str):
    """It is in the reply, in failures, and in the audit."""
    reply = team.http.post(
        "/v1/memories", json={"projectId": team.project_id, "content": "x"}, headers={"X-Request-Id": given}
    )
    failed = team.http.get("/v1/memories/x", headers={"X-Request-Id": given})

    assert (reply.headers["X-Request-Id"], failed.json()["requestId"]) == (given, given)
    entry = team.http.get("/v1/audit", params={"action": "memory.create"}).json()["audit"][0]
    assert entry["requestId"] == given


@pytest.mark.parametrize("given", ["", "-a", "a b", "x" * 65, "a/b", "é", "a.b"])
def test_a_request_id_of_another_form_is_replaced(team: Tenant, given: str):
    """Whatever a log or a header could trip over is not taken."""
    replies = [team.http.get("/v1/info", headers={"X-Request-Id": given.encode()}) for _ in range(2)]

    made = [reply.headers["X-Request-Id"] for reply in replies]
    assert given not in made
    assert made[0] != made[1]


@pytest.mark.parametrize("path", ["/v1/memories", "/v1/memories/{id}", "/v1/info", "/healthz", "/v1/memories/x", "/no"])
def test_head_answers_as_get_does(team: Tenant, path: str):
    """Same status, same headers, no body."""
    path = path.replace("{id}", team.post_memory(content="x").json()["memory"]["id"])
    got, head = team.http.get(path), team.http.head(path)

    assert (head.status_code, head.content) == (got.status_code, b"")
    for name in ("content-type", "content-length", "etag"):
        assert head.headers.get(name) == got.headers.get(name)


def test_a_connection_goes_on_after_head_and_after_failures(team: Tenant):
    """No stray bytes follow a reply: the next one on the same connection is right."""
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


def test_every_reply_forbids_sniffing_framing_and_storing(team: Tenant):
    """Security headers are on successes and failures."""
    for path in ("/v1/info", "/v1/no"):
        headers = team.http.get(path).headers
        wanted = ("x-content-type-options", "x-frame-options", "referrer-policy", "cache-control")
        assert [headers.get(name) for name in wanted] == ["nosniff", "DENY", "no-referrer", "no-store"]


def test_a_bug_is_500_and_tells_nothing(stores: Stores, start_server: Callable[..., Server], tmp_path: Path):
    """What was not foreseen is logged and blurred."""
    server = start_server()
    team = make_tenant(server, "a")
    memory = team.post_memory(content="x").headers["Location"]
    with closing(Database(stores.owner_url(tmp_path))) as owned, owned.write() as connection:
        connection.exec_driver_sql("DROP TABLE memory_sources")

    with closing(team.http):
        reply = team.http.get(f"{memory}/sources")

    assert code_of(reply) == (500, "Internal")
    assert NEVER.search(reply.text) is None


LOCKING = {"sqlite": ["BEGIN IMMEDIATE"], "postgresql": ["BEGIN", "LOCK TABLE memory_items IN EXCLUSIVE MODE"]}


def test_a_database_that_cannot_answer_is_503(
    stores: Stores, start_server: Callable[..., Server], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """While another program keeps the write lock, writes are 503 with `Retry-After` and reads go on."""
    monkeypatch.setattr("app.store.engines.sqlite._BUSY_TIMEOUT_MS", 50)
    monkeypatch.setattr(postgresql, "_LIMITS", f"{postgresql._LIMITS}; SET lock_timeout = 2000")
    server = start_server()
    team = make_tenant(server, "a")
    with closing(team.http), closing(raw_writer.opened(stores.owner_url(tmp_path))) as other:
        for statement in LOCKING[stores.dialect]:
            other.run(statement)
        refused, read = team.post_memory(content="x"), team.http.get("/v1/memories")
        other.run("ROLLBACK")
        done = team.post_memory(content="x")

    assert (code_of(refused), read.status_code, done.status_code) == ((503, "Unavailable"), 200, 201)
    assert refused.headers["Retry-After"].isdigit()
    assert NEVER.search(refused.text) is None


@pytest.mark.parametrize("verb", ["GET", "PATCH", "DELETE"])
@pytest.mark.parametrize("noun", ["projects", "sessions", "keys"])
def test_an_id_that_nothing_can_have_is_not_found(team: Tenant, noun: str, verb: str):
    """NUL in a path is a name like any other: nobody's."""
    if (noun, verb) == ("sessions", "PATCH"):
        return
    body = {"json": {}} if verb == "PATCH" else {}

    assert team.http.request(verb, f"/v1/{noun}/a%00b", **body).status_code == 404
