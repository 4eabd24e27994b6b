"""/v1/sessions over HTTP."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from tests.conftest import Tenant
from tests.problems import code_of

AsTeam = Callable[[str], Tenant]


def start(team: Tenant, **fields: Any) -> httpx.Response:
    return team.http.post("/v1/sessions/start", json={"projectId": team.project_id, **fields})


def started(team: Tenant, **fields: Any) -> dict[str, Any]:
    reply = start(team, **fields)
    assert reply.status_code == 201, reply.text
    return dict(reply.json()["session"])


def test_a_session_comes_back_as_it_was_sent(team: Tenant):
    """Under its noun, with every id, and at the `Location`."""
    fields = {
        "externalSessionId": "e",
        "contentSessionId": "c",
        "memorySessionId": "m",
        "platformSource": "codex",
        "agentId": "a",
        "agentType": "subagent",
        "title": "Why does checkout time out?",
        "metadata": {"prompt": "x"},
    }
    reply = start(team, **fields)
    session = reply.json()["session"]

    assert {name: session[name] for name in fields} == fields
    assert session["endedAtEpoch"] is None
    assert team.http.get(reply.headers["Location"]).json() == {"session": session}


@pytest.mark.parametrize(
    "ids",
    [
        {"externalSessionId": "e"},
        {"contentSessionId": "c"},
        {"externalSessionId": "e", "contentSessionId": "c"},
        {"externalSessionId": "e", "platformSource": "Cursor IDE"},
    ],
)
def test_the_same_ids_again_return_the_existing_session(team: Tenant, ids: dict[str, str]):
    """A repeat answers 200 with the existing row."""
    first, again = start(team, **ids), start(team, **ids)

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()


@pytest.mark.parametrize(
    ("first", "second"),
    [
        ({"externalSessionId": "e"}, {"externalSessionId": "f"}),
        ({"contentSessionId": "c"}, {"contentSessionId": "d"}),
        ({"externalSessionId": "e"}, {"externalSessionId": "e", "platformSource": "codex"}),
        ({"contentSessionId": "c"}, {"contentSessionId": "c", "platformSource": "codex"}),
        ({"externalSessionId": "e", "contentSessionId": "c"}, {"externalSessionId": "f", "contentSessionId": "c"}),
        ({}, {}),
    ],
)
def test_other_ids_or_another_platform_are_another_session(team: Tenant, first: dict[str, str], second: dict[str, str]):
    """Sessions are identified by project, platform and the client's id."""
    assert started(team, **first)["id"] != started(team, **second)["id"]


def test_the_same_id_in_another_project_is_another_session(team: Tenant):
    """Projects share no sessions."""
    other = team.http.post("/v1/projects", json={"name": "other"}).json()["project"]["id"]

    assert started(team, externalSessionId="e")["id"] != started(team, externalSessionId="e", projectId=other)["id"]


def test_ids_that_are_sent_later_complete_the_session(team: Tenant):
    """Missing fields are filled in, existing ones are never replaced."""
    first = started(team, contentSessionId="c", title="first")

    again = start(
        team, contentSessionId="c", externalSessionId="e", memorySessionId="m", title="second", metadata={"a": 1}
    )

    assert again.status_code == 200
    session = again.json()["session"]
    assert (session["id"], session["externalSessionId"], session["memorySessionId"]) == (first["id"], "e", "m")
    assert (session["title"], session["metadata"]) == ("first", {"a": 1})
    assert start(team, externalSessionId="e").json()["session"]["id"] == first["id"]


def test_unknown_keys_are_ignored(team: Tenant):
    """The senders are hooks of several tools: an unknown key does not stop them."""
    assert start(team, externalSessionId="e", somethingNew={"a": 1}).status_code == 201


@pytest.mark.parametrize("fields", [{"externalSessionId": 7}, {"metadata": []}, {"title": ["x"]}, {"projectId": None}])
def test_known_keys_are_validated_strictly(team: Tenant, fields: dict[str, Any]):
    """A value of another type is refused."""
    assert code_of(start(team, **fields)) == (400, "ValidationError")


def test_the_first_end_time_is_kept(team: Tenant):
    """Ending twice answers 200 twice, with the first end time."""
    session = started(team, externalSessionId="e")
    path = f"/v1/sessions/{session['id']}/end"

    first, second = team.http.post(path, json={}), team.http.post(path)

    assert (first.status_code, second.status_code) == (200, 200)
    assert first.json()["session"]["endedAtEpoch"] >= session["startedAtEpoch"]
    assert second.json() == first.json()


def test_an_end_can_be_sent_with_an_idempotency_key(team: Tenant):
    """The repeat is marked as one."""
    path = f"/v1/sessions/{started(team)['id']}/end"
    first, second = (team.http.post(path, headers={"Idempotency-Key": "k"}) for _ in range(2))

    assert "Idempotent-Replayed" not in first.headers
    assert (second.headers["Idempotent-Replayed"], second.json()) == ("true", first.json())


def test_sessions_are_listed_newest_first(team: Tenant):
    """Page by page, each once, also among equal start times."""
    ids = [started(team, externalSessionId=str(n), startedAtEpoch=1000 + n // 2)["id"] for n in range(5)]

    first = team.http.get("/v1/sessions", params={"limit": 3}).json()
    second = team.http.get("/v1/sessions", params={"limit": 3, "cursor": first["nextCursor"]}).json()

    assert [each["id"] for each in first["sessions"] + second["sessions"]] == ids[::-1]


@pytest.mark.parametrize(("verb", "suffix"), [("GET", ""), ("POST", "/end")])
def test_a_foreign_session_looks_missing(as_team: AsTeam, verb: str, suffix: str):
    """Another team's session is 404, exactly like one that never existed."""
    foreign = started(as_team("b"), externalSessionId="e")["id"]

    def seen(session_id: str) -> dict[str, Any]:
        reply = as_team("a").http.request(verb, f"/v1/sessions/{session_id}{suffix}")
        assert code_of(reply) == (404, "NotFound")
        return {**reply.json(), "instance": "", "requestId": ""}

    assert seen(foreign) == seen("0" * 36) == seen("odd")


def test_events_that_came_before_their_session_join_it(team: Tenant):
    """Once a session starts, earlier events with its content id belong to it."""
    body = {"projectId": team.project_id, "sourceType": "hook", "eventType": "x", "occurredAtEpoch": 1}
    event = team.http.post("/v1/events", json={**body, "contentSessionId": "c"}).json()["event"]
    session = started(team, contentSessionId="c")

    joined = team.http.get(f"/v1/events/{event['id']}").json()["event"]

    assert (event["serverSessionId"], joined["serverSessionId"]) == (None, session["id"])


def test_deleting_a_session_row_keeps_its_memories(team: Tenant, server):
    """They are kept without a session; two with equal content do not collide."""
    sessions = [started(team, externalSessionId=name)["id"] for name in "ab"]
    for session in sessions:
        team.post_memory(content="same", serverSessionId=session)
    with server.database.write() as connection:
        for session in sessions:
            connection.execute(text("DELETE FROM server_sessions WHERE id = :id"), {"id": session})

    left = team.http.get("/v1/memories").json()["memories"]

    assert [memory["serverSessionId"] for memory in left] == [None, None]
