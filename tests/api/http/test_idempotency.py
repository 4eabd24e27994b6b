"""Idempotency-Key: a repeated request changes nothing, and returns the current state of its ids."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from app.services.shared import idempotency
from tests.conftest import Tenant
from tests.problems import code_of

AsTeam = Callable[[str], Tenant]


def post(team: Tenant, path: str, body: Any, key: str = "k") -> httpx.Response:
    return team.http.post(path, json=body, headers={"Idempotency-Key": key})


def bodies(team: Tenant) -> dict[str, Any]:
    project = {"projectId": team.project_id}
    event = {**project, "sourceType": "hook", "eventType": "x", "occurredAtEpoch": 1}
    return {
        "/v1/memories": {**project, "content": "x"},
        "/v1/memories/batch": [{**project, "content": "x"}, {**project, "content": "y"}],
        "/v1/projects": {"name": "n"},
        "/v1/sessions/start": project,
        "/v1/events": event,
        "/v1/events/batch": [event],
    }


PATHS = ["/v1/memories", "/v1/memories/batch", "/v1/projects", "/v1/sessions/start", "/v1/events", "/v1/events/batch"]


@pytest.mark.parametrize("path", PATHS)
def test_repeat_returns_the_first_reply_and_is_marked(team: Tenant, path: str):
    """Status, body and Location are those of the first reply; nothing is created twice."""
    first, again = (post(team, path, bodies(team)[path]) for _ in range(2))

    assert (first.status_code, first.headers.get("Idempotent-Replayed")) == (201, None)
    assert (again.status_code, again.headers.get("Idempotent-Replayed")) == (201, "true")
    assert again.json() == first.json()
    assert again.headers.get("Location") == first.headers.get("Location")


def test_repeat_keeps_the_first_status(team: Tenant):
    """A duplicate stays 200 and `deduplicated`; a new memory stays 201 and new."""
    body = bodies(team)["/v1/memories"]
    created = post(team, "/v1/memories", body, "created")
    duplicate = post(team, "/v1/memories", body, "duplicate")
    again = [post(team, "/v1/memories", body, key) for key in ("created", "duplicate")]

    assert [(one.status_code, one.json()["deduplicated"]) for one in (created, duplicate)] == [
        (201, False),
        (200, True),
    ]
    assert [(one.status_code, one.json()) for one in again] == [(201, created.json()), (200, duplicate.json())]
    assert all(one.headers["Idempotent-Replayed"] == "true" for one in again)


def test_repeat_returns_the_current_state(team: Tenant):
    """A change made in between shows in the repeated reply."""
    memory = post(team, "/v1/memories", bodies(team)["/v1/memories"]).json()["memory"]
    team.http.patch(f"/v1/memories/{memory['id']}", json={"title": "new"})

    again = post(team, "/v1/memories", bodies(team)["/v1/memories"])

    assert again.json()["memory"]["title"] == "new"


@pytest.mark.parametrize("path", ["/v1/memories", "/v1/memories/batch"])
def test_repeat_after_a_deletion_is_404(team: Tenant, path: str):
    """Nothing is restored, and nothing is created again."""
    made = post(team, path, bodies(team)[path]).json()
    memory = made["memory"] if "memory" in made else made["memories"][0]
    team.http.delete(f"/v1/memories/{memory['id']}")

    assert code_of(post(team, path, bodies(team)[path])) == (404, "NotFound")


@pytest.mark.parametrize(("path", "change"), [("/v1/memories", {"content": "other"}), ("/v1/events", {})])
def test_key_of_a_different_request_is_rejected(team: Tenant, path: str, change: dict[str, str]):
    """A different body or route: 409, and nothing happens."""
    post(team, "/v1/memories", bodies(team)["/v1/memories"])

    assert code_of(post(team, path, {**bodies(team)[path], **change})) == (409, "IdempotencyMismatch")
    assert len(team.http.get("/v1/memories").json()["memories"]) == 1
    assert team.http.get("/v1/events").json()["events"] == []


def test_only_success_is_remembered(team: Tenant):
    """After an error the key is free: the corrected request succeeds."""
    refused = post(team, "/v1/memories", {"projectId": team.project_id, "content": " "})
    out_of_reach = post(team, "/v1/memories", {"projectId": "nobody's", "content": "x"})

    done = post(team, "/v1/memories", bodies(team)["/v1/memories"])

    assert (refused.status_code, out_of_reach.status_code, done.status_code) == (400, 403, 201)


def test_concurrent_repeats_take_effect_once(team: Tenant):
    """Racing requests create one project."""
    with ThreadPoolExecutor(8) as pool:
        replies = list(pool.map(lambda _: post(team, "/v1/projects", {"name": "raced"}), range(8)))

    assert {reply.status_code for reply in replies} <= {201, 409}
    assert len(team.http.get("/v1/projects").json()["projects"]) == 2


def test_another_key_or_another_team_is_a_different_request(as_team: AsTeam):
    """The keys of different credentials are independent."""
    replies = [post(as_team(name), "/v1/projects", {"name": "n"}, key) for name, key in ("ak", "al", "bk")]

    assert [reply.headers.get("Idempotent-Replayed") for reply in replies] == [None] * 3


@pytest.mark.parametrize("key", ["", "a b", "é", "x" * 256])
def test_malformed_key_is_rejected(team: Tenant, key: str):
    """It must be 1 to 255 printable ASCII characters."""
    headers = {"Idempotency-Key": key.encode()}

    assert code_of(team.http.post("/v1/projects", json={"name": "n"}, headers=headers)) == (400, "ValidationError")


def test_record_contains_no_text(team: Tenant, server):
    """It has the route, hash, status and ids only."""
    body = {"projectId": team.project_id, "content": "very secret lighthouse"}
    memory = post(team, "/v1/memories", body, "kept").json()["memory"]
    with server.database.read() as connection:
        record = connection.execute(
            text("SELECT * FROM idempotency_records WHERE ids LIKE :ids"), {"ids": f"%{memory['id']}%"}
        ).one()

    assert record._mapping["ids"] == f'["{memory["id"]}"]'
    assert "lighthouse" not in str(record)


def test_key_expires_after_a_day(team: Tenant, server):
    """An older record is ignored, and deleted later."""
    first = post(team, "/v1/projects", {"name": "n"})
    with server.database.write() as connection:
        connection.execute(
            text("UPDATE idempotency_records SET created_at_epoch = created_at_epoch - 86400001 WHERE ids LIKE :ids"),
            {"ids": f"%{first.json()['project']['id']}%"},
        )

    again = post(team, "/v1/projects", {"name": "n"})

    assert again.json()["project"]["id"] != first.json()["project"]["id"]


def test_expired_records_are_deleted(team: Tenant, server):
    """The hourly task deletes records older than a day, and keeps the others."""
    post(team, "/v1/projects", {"name": "n"}, "young")
    with server.database.write() as connection:
        connection.exec_driver_sql(
            "INSERT INTO idempotency_records VALUES ('nobody', 'old', 'POST /', 'h', 201, '[]', 1)"
        )
        removed = idempotency.delete_expired(connection)
        left = connection.exec_driver_sql("SELECT count(*) FROM idempotency_records WHERE key_id = 'nobody'")
        assert (removed, left.scalar_one()) == (1, 0)
