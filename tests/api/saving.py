"""Requests that store and change memories, and a memory with every field."""

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


def store_memory(team: Tenant, **fields: Any) -> dict[str, Any]:
    """Store a memory and return it."""
    reply = team.post_memory(**fields)
    assert reply.status_code == 201, reply.text
    return dict(reply.json()["memory"])


def start_session(team: Tenant) -> str:
    """Start a session and return its id."""
    body = {"projectId": team.project_id, "contentSessionId": "s"}
    return str(team.http.post("/v1/sessions/start", json=body).json()["session"]["id"])


def patch_memory(team: Tenant, memory: dict[str, Any], **changes: Any) -> httpx.Response:
    return team.http.patch(f"/v1/memories/{memory['id']}", json=changes)
