"""Bulk deletion of memories by filter, of sessions and of a person's data."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import Server, Tenant, client, make_key


@pytest.fixture
def filled(team: Tenant) -> Tenant:
    """The team, with ten memories of two kinds."""
    for number in range(10):
        kind = "prompt" if number % 2 else "summary"
        team.post_memory(content=f"memory {number}", kind=kind, pinned=number == 1, createdAtEpoch=1_000 + number)
    return team


def delete(team: Tenant, **body: Any):
    return team.http.post("/v1/memories/delete", json=body)


def contents(team: Tenant) -> list[str]:
    memories = team.http.get("/v1/memories", params={"orderBy": "oldest"}).json()["memories"]
    return [memory["content"] for memory in memories]


def test_a_dry_run_counts_and_changes_nothing(filled: Tenant):
    """The same number is deleted afterwards."""
    body = {"projectId": filled.project_id, "kinds": ["prompt"]}

    assert delete(filled, **body, dryRun=True).json() == {"deleted": 5, "dryRun": True}
    assert len(contents(filled)) == 10
    assert delete(filled, **body).json() == {"deleted": 5, "dryRun": False}
    assert contents(filled) == [f"memory {number}" for number in range(0, 10, 2)]
    assert delete(filled, **body).json() == {"deleted": 0, "dryRun": False}


def test_every_filter_of_search_applies(filled: Tenant):
    """Time ranges are half-open, as everywhere."""
    delete(filled, projectId=filled.project_id, createdAfter=1_003, createdBefore=1_009)

    assert contents(filled) == ["memory 0", "memory 1", "memory 2", "memory 9"]


def test_more_than_one_batch_is_deleted(team: Tenant):
    """In transactions of a thousand rows."""
    for start in range(0, 2_100, 300):
        batch = [{"projectId": team.project_id, "content": f"note {start + number}"} for number in range(300)]
        team.http.post("/v1/memories/batch", json=batch)

    assert delete(team, projectId=team.project_id, kinds=["manual"]).json()["deleted"] == 2_100
    assert contents(team) == []


@pytest.mark.parametrize("body", [{}, {"projectId": None}, {"kind": ["prompt"]}, {"query": "memory"}])
def test_without_a_filter_nothing_is_deleted(filled: Tenant, body: dict[str, Any]):
    """A misspelt filter, or none, is a 400."""
    assert delete(filled, **body).status_code == 400
    assert len(contents(filled)) == 10


def test_memories_of_other_teams_are_kept(filled: Tenant, as_team: Callable[[str], Tenant]):
    """Another team's project is 403, as for every projectId in a body; without one, the caller's own team is meant."""
    stranger = as_team("b")

    assert delete(stranger, projectId=filled.project_id, kinds=["prompt"]).status_code == 403
    assert delete(stranger, kinds=["prompt"]).json()["deleted"] == 0
    assert len(contents(filled)) == 10


def test_a_writer_may_not_delete_by_filter(server: Server, filled: Tenant):
    """Requires team:admin."""
    key = make_key(server.database, filled.caller, scopes=("memories:read", "memories:write"))
    with client(server, key) as writer:
        assert writer.post("/v1/memories/delete", json={"kinds": ["prompt"]}).status_code == 403


def test_a_session_is_deleted_with_everything_in_it(team: Tenant):
    """Its memories and events; a second time it is unknown."""
    started = team.http.post("/v1/sessions/start", json={"projectId": team.project_id, "externalSessionId": "run"})
    session_id = started.json()["session"]["id"]
    team.post_memory(content="in the session", serverSessionId=session_id)
    team.post_memory(content="beside it")
    event = {"projectId": team.project_id, "sourceType": "hook", "eventType": "e", "occurredAtEpoch": 1}
    team.http.post("/v1/events", json={**event, "serverSessionId": session_id})

    gone = team.http.delete(f"/v1/sessions/{session_id}").json()

    assert gone == {"deleted": True, "id": session_id, "memories": 1, "events": 1}
    assert contents(team) == ["beside it"]
    assert team.http.get("/v1/events").json()["events"] == []
    assert team.http.delete(f"/v1/sessions/{session_id}").status_code == 404


def test_deletions_are_audited_with_their_counts(filled: Tenant):
    """Who did it, in which project, how many."""
    delete(filled, projectId=filled.project_id, kinds=["prompt"])

    (entry,) = filled.http.get("/v1/audit", params={"action": "memory.delete"}).json()["audit"]

    assert (entry["targetId"], entry["count"]) == (filled.project_id, 5)


def test_erasure_removes_the_idempotency_records_of_erased_rows(team: Tenant):
    """A repeated POST must not be answered with something that was erased."""
    headers = {"Idempotency-Key": "one"}
    body = {"projectId": team.project_id, "content": "of ada", "metadata": {"person": "ada"}}
    team.http.post("/v1/memories", json=body, headers=headers)

    receipt = team.http.post("/v1/erasures", json={"metadata": {"person": "ada"}}).json()["receipt"]

    assert (receipt["memories"], receipt["idempotencyRecords"], receipt["dryRun"]) == (1, 1, False)
    assert team.http.post("/v1/memories", json=body, headers=headers).status_code == 201
