"""What tests of memories send: every field of one, and the requests that store and change it."""

from typing import Any

import httpx

from tests.conftest import Tenant

FIELDS = {
    "kind": "observation",
    "type": "bugfix",
    "title": "The gateway waits",
    "subtitle": "for three seconds",
    "text": "as the bank does",
    "narrative": "and no longer",
    "facts": ["timeout = 3 s"],
    "concepts": ["gotcha"],
    "filesRead": ["src/pay.py"],
    "filesModified": ["src/gateway.py"],
    "metadata": {"nested": {"list": [1, 2.5, None, True]}},
    "pinned": True,
    "legacyObservationId": 42,
    "createdAtEpoch": 1_700_000_000_000,
}


def stored(team: Tenant, **fields: Any) -> dict[str, Any]:
    """Store a memory and return it."""
    reply = team.post_memory(**fields)
    assert reply.status_code == 201, reply.text
    return dict(reply.json()["memory"])


def begun(team: Tenant) -> str:
    """Begin a session and return its id."""
    asked = {"projectId": team.project_id, "contentSessionId": "s"}
    return str(team.http.post("/v1/sessions/start", json=asked).json()["session"]["id"])


def patched(team: Tenant, memory: dict[str, Any], **changes: Any) -> httpx.Response:
    return team.http.patch(f"/v1/memories/{memory['id']}", json=changes)
