"""POST /v1/memories/batch: all or none, in input order."""

from collections.abc import Callable
from typing import Any

import httpx
import pytest

from tests.conftest import Tenant
from tests.problems import code_of

AsTeam = Callable[[str], Tenant]


def post(team: Tenant, *items: dict[str, Any]) -> httpx.Response:
    """Send a batch of memories of the team's project."""
    return team.http.post("/v1/memories/batch", json=[{"projectId": team.project_id, **item} for item in items])


def stored(team: Tenant) -> list[dict[str, Any]]:
    return list(team.http.get("/v1/memories").json()["memories"])


def test_a_batch_is_answered_in_input_order(team: Tenant):
    """Each memory is at the position of its input."""
    reply = post(team, *({"content": f"number {number}"} for number in range(20)))

    assert reply.status_code == 201
    assert [memory["narrative"] for memory in reply.json()["memories"]] == [f"number {n}" for n in range(20)]


def test_duplicates_in_a_batch_are_one_memory(team: Tenant):
    """The same content twice, or content that is already stored, resolves to one row."""
    existing = team.post_memory(content="existing").json()["memory"]["id"]

    reply = post(team, {"content": "a"}, {"content": "existing"}, {"content": "a"})

    ids = [memory["id"] for memory in reply.json()["memories"]]
    assert (ids[0], ids[1]) == (ids[2], existing)
    assert len(stored(team)) == 2


@pytest.mark.parametrize(
    ("bad", "code", "path"),
    [
        ({"content": " "}, (400, "ValidationError"), "body[1]"),
        ({"content": "a", "narrative": "b"}, (400, "ValidationError"), "body[1].content"),
        ({"content": "a", "type": " "}, (400, "ValidationError"), "body[1].type"),
        ({"content": 7}, (400, "ValidationError"), "body[1].content"),
        ({"content": "a", "projectId": "nobody's"}, (403, "Forbidden"), None),
        ({"content": "a", "serverSessionId": "nobody's"}, (404, "NotFound"), None),
    ],
)
def test_one_bad_memory_rejects_the_whole_batch(team: Tenant, bad: dict[str, Any], code: Any, path: str | None):
    """Nothing of a refused batch is stored, and the error names the position."""
    reply = post(team, {"content": "good"}, bad, {"content": "good too"})

    assert code_of(reply) == code
    assert [issue["path"] for issue in reply.json()["issues"]] == ([path] if path else [])
    assert stored(team) == []


def test_a_batch_is_validated_before_its_projects_are_checked(team: Tenant):
    """400 comes before 403: a malformed request does not reveal whether a project is within reach."""
    assert code_of(post(team, {"content": "a", "projectId": "nobody's"}, {"content": ""}))[0] == 400


def test_a_batch_may_span_several_projects_of_the_team(team: Tenant):
    """Each memory names its own project."""
    other = team.http.post("/v1/projects", json={"name": "other"}).json()["project"]["id"]

    reply = post(team, {"content": "same"}, {"content": "same", "projectId": other})

    assert [memory["projectId"] for memory in reply.json()["memories"]] == [team.project_id, other]


@pytest.mark.parametrize("count", [0, 501])
def test_a_batch_holds_1_to_500(team: Tenant, count: int):
    """An empty batch and a longer one are refused."""
    assert code_of(post(team, *({"content": str(number)} for number in range(count)))) == (400, "ValidationError")


def test_500_memories_fit(team: Tenant):
    """The largest batch is stored completely."""
    assert len(post(team, *({"content": str(number)} for number in range(500))).json()["memories"]) == 500


def test_every_new_memory_of_a_batch_is_audited(team: Tenant):
    """One entry per new memory, none for a duplicate."""
    post(team, {"content": "a"}, {"content": "b"}, {"content": "a"})

    entries = team.http.get("/v1/audit", params={"action": "memory.create"}).json()["audit"]
    assert len(entries) == 2
