"""claude-mem's hooks and MCP server work with only their URL changed: what they send, and the keys they read."""

import json
from typing import Any

import pytest

from tests import SHARED
from tests.conftest import Tenant
from tests.problems import code_of

RECORDED = sorted((SHARED / "fixtures" / "clients").glob("*.json"))


class Client:
    """A client of the server: fills in placeholders in requests, and remembers ids from replies."""

    def __init__(self, team: Tenant) -> None:
        self._http = team.http
        self._known = {"apiKey": team.api_key, "projectId": team.project_id, "sessionId": "?", "jobId": "unknown-job"}

    def send(self, verb: str, path: str, body: Any = None, headers: dict[str, str] | None = None) -> Any:
        """Send a request with its placeholders filled in; remember the ids in the reply."""
        sent = {name: self._filled(value) for name, value in (headers or {}).items()}
        content = None if body is None else self._filled(json.dumps(body))
        reply = self._http.request(verb, self._filled(path), content=content, headers=sent)
        if reply.is_success and "session" in reply.json():
            self._known["sessionId"] = reply.json()["session"]["id"]
        return reply

    def _filled(self, text: str) -> str:
        for name, value in self._known.items():
            text = text.replace("{" + name + "}", value)
        return text


@pytest.fixture
def client(team: Tenant) -> Client:
    """A client with a key of the team."""
    return Client(team)


JSON = {"Content-Type": "application/json", "Authorization": "Bearer {apiKey}"}
SESSION_KEYS = {"id", "projectId", "teamId", "externalSessionId", "contentSessionId"}
EVENT_KEYS = {"id", "projectId", "serverSessionId"}


def start(client: Client) -> Any:
    body = {
        "projectId": "{projectId}",
        "externalSessionId": "run-1",
        "contentSessionId": "run-1",
        "agentId": None,
        "agentType": None,
        "platformSource": "claude",
        "metadata": {"project": "bakery", "prompt": "Why is the oven cold?"},
    }
    return client.send("POST", "/v1/sessions/start", body, JSON)


@pytest.mark.parametrize("path", ["/api/health", "/api/readiness", "/api/version"])
def test_hooks_poll_before_every_call(client: Client, path: str):
    """The polls are answered immediately, as JSON, without a key."""
    reply = client.send("GET", path, headers={"Authorization": ""})

    assert (reply.status_code, isinstance(reply.json(), dict)) == (200, True)


def test_a_run_starts_twice_and_ends(client: Client):
    """session-init and summarize start the same session, and the end ends that session."""
    first, second = start(client), start(client)
    ended = client.send("POST", "/v1/sessions/{sessionId}/end", {}, JSON)

    assert (first.status_code, second.status_code, ended.status_code) == (201, 200, 200)
    assert first.json()["session"].keys() >= SESSION_KEYS
    assert first.json()["session"]["id"] == second.json()["session"]["id"] == ended.json()["session"]["id"]


def test_an_observation_joins_its_session(client: Client):
    """An event that names the content id, and one that also names the session, belong to that session."""
    session = start(client).json()["session"]["id"]
    event = {
        "projectId": "{projectId}",
        "sourceType": "hook",
        "eventType": "tool_use",
        "occurredAtEpoch": 1_796_000_000_000,
        "contentSessionId": "run-1",
        "platformSource": "claude",
        "payload": {"tool_name": "Read", "tool_input": {"file_path": "oven.py"}, "tool_response": {"ok": True}},
    }
    used = client.send("POST", "/v1/events", event, JSON)
    said = client.send(
        "POST", "/v1/events", {**event, "eventType": "assistant_message", "serverSessionId": session}, JSON
    )

    for reply in (used, said):
        assert (reply.status_code, reply.json()["event"]["serverSessionId"]) == (201, session)
        assert reply.json()["event"].keys() >= EVENT_KEYS


def test_the_mcp_server_stores_and_searches(client: Client):
    """What its tools write is found by its tools."""
    memory = {
        "projectId": "{projectId}",
        "kind": "manual",
        "type": "manual",
        "narrative": "the oven is cold",
        "title": "T",
    }
    stored = client.send("POST", "/v1/memories", {**memory, "metadata": {"title": "T"}}, JSON)
    event = {
        "projectId": "{projectId}",
        "sourceType": "api",
        "eventType": "x",
        "occurredAtEpoch": 1,
        "payload": {"a": 1},
    }
    recorded = client.send("POST", "/v1/events?generate=false", event, JSON)
    found = client.send("POST", "/v1/search", {"projectId": "{projectId}", "query": "oven", "limit": 3}, JSON)
    context = client.send("POST", "/v1/context", {"projectId": "{projectId}", "query": "oven"}, JSON)

    assert [reply.status_code for reply in (stored, recorded, found, context)] == [201, 201, 200, 200]
    assert stored.json()["memory"]["content"] == "the oven is cold"
    assert [each["id"] for each in found.json()["memories"]] == [stored.json()["memory"]["id"]]
    assert context.json().keys() >= {"memories", "context"}


@pytest.mark.parametrize("path", ["/api/context/inject?projects=bakery", "/v1/jobs/1", "/api/search?query=q&project=p"])
def test_routes_that_do_not_exist_yet_are_not_found(client: Client, path: str):
    """Clients go on without them: 404 in the standard shape of errors."""
    assert code_of(client.send("GET", path)) == (404, "NotFound")


def has_key(body: Any, path: str) -> bool:
    """Say whether a dotted key is in a reply."""
    for part in path.split("."):
        if not isinstance(body, dict) or part not in body:
            return False
        body = body[part]
    return True


@pytest.mark.skipif(not RECORDED, reason=f"no recorded requests under {SHARED}; set CMEM_SHARED")
@pytest.mark.parametrize("recording", RECORDED, ids=lambda path: path.stem)
def test_recorded_requests_are_answered_as_their_client_needs(client: Client, recording: Any):
    """Each recorded request in order: a JSON reply with the keys that are read, or 404 for routes yet to come."""
    for request in json.loads(recording.read_text(encoding="utf-8"))["requests"]:
        reply = client.send(request["method"], request["path"], request["body"], request["headers"])
        if request.get("later"):
            assert code_of(reply) == (404, "NotFound"), request["path"]
            continue
        assert reply.is_success, (request["path"], reply.text)
        assert [key for key in request.get("replyKeys", []) if not has_key(reply.json(), key)] == [], request["path"]
