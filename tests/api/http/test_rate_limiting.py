"""Rate limits and quotas over HTTP: per key, shared by all processes, off by default."""

import time
from collections.abc import Callable
from contextlib import ExitStack

import httpx
import pytest
from sqlalchemy import text

from app.caller import EVERYTHING
from app.services.quotas import rate_limit
from tests.conftest import Server, Tenant, client, make_key, make_tenant

LIMIT = 20


def headers(reply: httpx.Response) -> tuple[int, int, int]:
    limit, remaining, reset = (int(reply.headers[f"X-RateLimit-{name}"]) for name in ("Limit", "Remaining", "Reset"))
    return limit, remaining, reset


def wait_for_room_in_the_minute() -> None:
    """Sleep if the minute is about to end: a test of one window must not span two."""
    if (left := rate_limit.seconds_left_in_minute()) < 8:
        time.sleep(left)


@pytest.fixture
def limited(start_server: Callable[..., Server]) -> Callable[..., tuple[Server, Tenant]]:
    def start(**settings: object) -> tuple[Server, Tenant]:
        wait_for_room_in_the_minute()
        server = start_server(**settings)
        return server, make_tenant(server, "a")

    return start


def test_limits_are_off_by_default(team: Tenant):
    """Replies have no rate limit headers either."""
    assert "X-RateLimit-Limit" not in team.http.get("/v1/memories").headers


def test_replies_carry_the_remaining_requests_and_the_reset_time(limited: Callable[..., tuple[Server, Tenant]]):
    """So does the 429, which also says when to retry."""
    _, team = limited(rate_limit_per_min=3)
    with team.http as http:
        replies = [http.get("/v1/memories") for _ in range(4)]

    assert [reply.status_code for reply in replies] == [200, 200, 200, 429]
    assert [headers(reply)[:2] for reply in replies] == [(3, 2), (3, 1), (3, 0), (3, 0)]
    assert replies[3].json()["error"] == "RateLimited"
    assert 0 < int(replies[3].headers["Retry-After"]) <= 60
    assert 0 < headers(replies[0])[2] <= 60


def test_each_key_has_its_own_limit(limited: Callable[..., tuple[Server, Tenant]]):
    """One key uses up nothing of another, even from the same peer."""
    server, team = limited(rate_limit_per_min=2)
    with team.http as http, client(server, make_key(server.database, team.caller)) as other:
        assert [http.get("/v1/memories").status_code for _ in range(3)] == [200, 200, 429]
        assert other.get("/v1/memories").status_code == 200


def test_token_counts_as_its_key(limited: Callable[..., tuple[Server, Tenant]]):
    """Otherwise tokens would multiply the limit."""
    server, team = limited(rate_limit_per_min=3)
    with team.http as http:
        token = http.post("/v1/auth/token", json={}).json()["accessToken"]
        with client(server, token) as other:
            assert [other.get("/v1/memories").status_code for _ in range(3)] == [200, 200, 429]


def test_checks_run_in_order_of_credential_rate_limit_scope(
    limited: Callable[..., tuple[Server, Tenant]],
):
    """401, 429, 403."""
    server, team = limited(rate_limit_per_min=1)
    with team.http, client(server, make_key(server.database, team.caller)) as reader:
        assert reader.post("/v1/keys", json={}).status_code == 403
        assert reader.post("/v1/keys", json={}).status_code == 429
    with client(server, "cmem_x_y") as nobody:
        assert nobody.get("/v1/memories").status_code == 401


def test_two_processes_share_a_limit_within_the_documented_overshoot(limited: Callable[..., tuple[Server, Tenant]]):
    """Together they admit at most limit + processes x a tenth of it."""
    first, team = limited(rate_limit_per_min=LIMIT)
    second, _ = limited(rate_limit_per_min=LIMIT)
    admitted = 0
    with ExitStack() as stack:
        https = [stack.enter_context(client(server, team.api_key)) for server in (first, second)]
        for _ in range(LIMIT):
            admitted += sum(http.get("/v1/auth/whoami").status_code == 200 for http in https)
    team.http.close()

    assert LIMIT <= admitted <= LIMIT + 2 * (LIMIT // 10)


def test_restart_does_not_reset_a_limit(limited: Callable[..., tuple[Server, Tenant]]):
    """The counts are stored."""
    _, team = limited(rate_limit_per_min=LIMIT)
    with team.http as http:
        while http.get("/v1/auth/whoami").status_code == 200:
            pass
    fresh, _ = limited(rate_limit_per_min=LIMIT)
    with client(fresh, team.api_key) as http:
        admitted = sum(http.get("/v1/auth/whoami").status_code == 200 for _ in range(LIMIT))

    assert admitted <= LIMIT // 10


def test_key_over_its_quota_gets_402(limited: Callable[..., tuple[Server, Tenant]]):
    """On every route but whoami and usage, which show the caller why."""
    _, team = limited(monthly_request_cap=3)
    with team.http as http:
        statuses = [http.get("/v1/memories").status_code for _ in range(4)]
        refused = http.post("/v1/memories", json={"projectId": team.project_id, "content": "x"})
        exempt = [http.get("/v1/auth/whoami").status_code, http.get("/v1/usage").status_code]

    assert statuses == [200, 200, 200, 402]
    assert (refused.status_code, refused.json()["error"]) == (402, "QuotaExceeded")
    assert exempt == [200, 200]


def test_errors_of_the_request_come_before_the_quota(limited: Callable[..., tuple[Server, Tenant]]):
    """403 for a scope, 415 and 400 for the body."""
    server, team = limited(monthly_request_cap=1)
    with team.http as http, client(server, make_key(server.database, team.caller)) as reader:
        http.get("/v1/memories")
        reader.get("/v1/memories")
        assert reader.post("/v1/keys", json={}).status_code == 403
        assert http.post("/v1/memories", content=b"x").status_code == 415
        assert http.post("/v1/memories", json={"unknown": 1}).status_code == 400


def test_errors_of_the_data_come_before_the_quota(limited: Callable[..., tuple[Server, Tenant]]):
    """403 for a project, 404, 412, 409. 402 is the last check, and nothing has been changed then."""
    server, team = limited(monthly_request_cap=6)
    stranger = make_tenant(server, "b")
    own = {"projectId": team.project_id}
    with team.http as http, stranger.http:
        team.post_memory(content="same")
        project = http.post("/v1/projects", json={"name": "p", "slug": "taken"}).json()["project"]["id"]
        memory = team.post_memory(content="kept").json()["memory"]["id"]
        while http.get("/v1/memories").status_code != 402:
            pass
        path = f"/v1/memories/{memory}"
        stale = {"If-Match": '"0"'}
        refused = [
            http.post("/v1/memories", json={"projectId": stranger.project_id, "content": "x"}),
            http.post("/v1/search", json={"projectId": stranger.project_id, "query": "x"}),
            http.get("/v1/memories/unknown"),
            http.patch("/v1/projects/unknown", json={"name": "x"}),
            http.delete(path, headers=stale),
            http.post("/v1/projects", json={"name": "q", "slug": "taken"}),
            http.patch(path, json={"content": "same"}),
        ]
        over = [
            http.get(path),
            http.post("/v1/search", json={**own, "query": "kept"}),
            http.post("/v1/memories", json={**own, "content": "y"}, headers={"Idempotency-Key": "k"}),
            http.patch(path, json={"title": "changed"}),
            http.delete(path),
            http.post("/v1/memories/delete", json={**own, "kinds": ["manual"]}),
            http.delete(f"/v1/projects/{project}"),
            http.get(f"/v1/projects/{team.project_id}/export"),
            http.post("/v1/keys", json={"scopes": ["memories:read"]}),
            http.delete(f"/v1/teams/{team.team_id}"),
        ]

    assert [reply.status_code for reply in refused] == [403, 403, 404, 404, 412, 409, 409]
    assert [(reply.status_code, reply.json()["error"]) for reply in over] == [(402, "QuotaExceeded")] * len(over)
    with client(server, make_key(server.database, team.caller, scopes=(EVERYTHING,))) as http:
        left = http.get("/v1/memories").json()["memories"]
        assert [(one["content"], one["title"]) for one in left] == [("kept", None), ("same", None)]
        assert len(http.get("/v1/projects").json()["projects"]) == 2


def test_quota_starts_again_each_month(limited: Callable[..., tuple[Server, Tenant]]):
    """Counts of an earlier month do not matter."""
    server, team = limited(monthly_request_cap=5)
    with team.http as http:
        key_id = http.get("/v1/auth/whoami").json()["keyId"]
        with server.database.write() as connection:
            rate_limit.store(connection, [rate_limit.RequestCount(key_id, "2001-01", 100)])
        assert http.get("/v1/memories").status_code == 200


def test_limits_fail_open(limited: Callable[..., tuple[Server, Tenant]]):
    """A database that cannot be written does not lock clients out of reading."""
    server, team = limited(rate_limit_per_min=LIMIT)
    with team.http as http:
        http.get("/v1/memories")
        with server.database.write() as connection:
            connection.execute(text("SELECT 1"))  # the first statement acquires the write lock
            started = time.monotonic()
            statuses = {http.get("/v1/memories").status_code for _ in range(LIMIT // 5)}
            waited = time.monotonic() - started

    assert statuses == {200}
    assert waited < 5


def test_local_dev_is_not_limited(limited: Callable[..., tuple[Server, Tenant]]):
    """There is no key to count."""
    server, team = limited(rate_limit_per_min=1, auth_mode="local-dev", allow_local_dev_bypass=True)
    team.http.patch(f"/v1/teams/{team.team_id}", json={"slug": "default"})
    team.http.close()
    with client(server, None) as http:
        replies = [http.get("/v1/auth/whoami") for _ in range(3)]

    assert [one.status_code for one in replies] == [200, 200, 200]
    assert replies[0].json()["scopes"] == [EVERYTHING]
