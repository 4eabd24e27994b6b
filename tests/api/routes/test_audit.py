"""/v1/audit: what was done, what was refused, and, if configured, what was read."""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
from sqlalchemy.exc import IntegrityError

from app.caller import AUDIT_READ, EVERYTHING, MEMORIES_READ, server_owner
from app.clock import now_ms
from app.services.audit import entries as audit_entries
from app.services.audit.entries import AuditBuffer, AuditEvent
from app.store.database import Database
from tests.conftest import Server, Tenant, client, make_key, make_tenant

SECRET_WORDS = "xylophone quartz"


def entries(tenant: Tenant, **filters: object) -> list[dict]:
    reply = tenant.http.get("/v1/audit", params={"limit": 200, **filters})
    assert reply.status_code == 200, reply.text
    return reply.json()["audit"]


def wait_for_entries(tenant: Tenant, **filters: object) -> list[dict]:
    """Return entries that are written in batches, as soon as there are any."""
    deadline = time.monotonic() + 10
    while not (found := entries(tenant, **filters)) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


def test_every_write_is_audited(team: Tenant):
    """Entries have actor, request and target, in the order in which things happened."""
    headers = {"X-Request-Id": "the-request"}
    body = {"projectId": team.project_id, "content": "x"}
    memory = team.http.post("/v1/memories", json=body, headers=headers).json()["memory"]["id"]
    team.http.patch(f"/v1/memories/{memory}", json={"title": "y"})
    team.http.delete(f"/v1/memories/{memory}")
    key = team.http.post("/v1/keys", json={}).json()["id"]
    team.http.post(f"/v1/keys/{key}/rotate", json={"overlapSeconds": 9})
    team.http.patch(f"/v1/keys/{key}", json={"name": "n"})
    team.http.delete(f"/v1/keys/{key}")
    team.http.post("/v1/auth/token", json={})
    team.http.post(f"/v1/teams/{team.team_id}/members", json={"userId": "ann", "role": "viewer"})
    team.http.patch(f"/v1/teams/{team.team_id}/members/ann", json={"role": "member"})
    team.http.delete(f"/v1/teams/{team.team_id}/members/ann")
    team.http.patch(f"/v1/teams/{team.team_id}", json={"name": "n"})
    own = team.http.get("/v1/auth/whoami").json()["keyId"]

    done = [entry for entry in entries(team)[::-1] if entry["actorId"] == own]

    assert [entry["action"] for entry in done] == [
        *("memory.create", "memory.update", "memory.delete", "key.create", "key.rotate", "key.update", "key.revoke"),
        *("token.create", "member.create", "member.update", "member.delete", "team.update"),
    ]
    assert {entry["outcome"] for entry in done} == {"done"}
    assert (done[0]["targetId"], done[0]["requestId"]) == (memory, "the-request")
    assert (done[0]["projectId"], done[0]["targetType"]) == (team.project_id, "memory")


def test_filters_narrow_the_list(team: Tenant):
    """Action, actor, target, project and time, also combined."""
    first = team.post_memory(content="one").json()["memory"]["id"]
    moment = now_ms() + 1
    time.sleep(0.01)
    second = team.post_memory(content="two").json()["memory"]["id"]
    own = team.http.get("/v1/auth/whoami").json()["keyId"]
    create = {"action": "memory.create"}

    assert [entry["targetId"] for entry in entries(team, **create)] == [second, first]
    assert [entry["targetId"] for entry in entries(team, **create, after=moment)] == [second]
    assert [entry["targetId"] for entry in entries(team, **create, before=moment)] == [first]
    assert [entry["targetId"] for entry in entries(team, targetId=first)] == [first]
    assert len(entries(team, actorId=own, projectId=team.project_id)) == 2
    assert entries(team, actorId="nobody") == entries(team, action="nothing") == []


def test_the_list_is_paged(team: Tenant):
    """A cursor continues where the page ended, and only under the same filters."""
    for number in range(5):
        team.post_memory(content=f"number {number}")
    page = team.http.get("/v1/audit", params={"limit": 2, "action": "memory.create"}).json()
    rest = team.http.get("/v1/audit", params={"action": "memory.create", "cursor": page["nextCursor"]}).json()

    assert len({entry["id"] for entry in page["audit"] + rest["audit"]}) == 5
    assert team.http.get("/v1/audit", params={"cursor": page["nextCursor"]}).status_code == 400


def test_a_project_key_sees_its_project_only(server: Server, team: Tenant):
    """Entries of the rest of the team are out of its reach."""
    team.post_memory(content="x")
    key = make_key(server.database, team.caller, scopes=(AUDIT_READ,), project_id=team.project_id)
    with client(server, key) as http:
        seen = http.get("/v1/audit").json()["audit"]

    assert {entry["projectId"] for entry in seen} == {team.project_id}
    assert "memory.create" in {entry["action"] for entry in seen}


def test_a_refused_action_is_audited(server: Server, team: Tenant):
    """The entry says who attempted what on which resource."""
    memory = team.post_memory(content="x").json()["memory"]["id"]
    with client(server, make_key(server.database, team.caller, scopes=(MEMORIES_READ,))) as http:
        actor = http.get("/v1/auth/whoami").json()["keyId"]
        http.delete(f"/v1/memories/{memory}", headers={"X-Request-Id": "tried"})

    (entry,) = wait_for_entries(team, actorId=actor)

    assert (entry["action"], entry["outcome"], entry["targetId"]) == ("memory.delete", "refused", memory)
    assert (entry["requestId"], entry["count"]) == ("tried", 1)


def test_a_refusal_by_a_rule_is_audited(team: Tenant):
    """Not only missing scopes: access to a project out of reach is a refused action too."""
    team.http.post("/v1/memories", json={"projectId": "another", "content": "x"})

    (entry,) = wait_for_entries(team, action="memory.create")

    assert entry["outcome"] == "refused"


def test_use_of_a_revoked_key_is_audited_for_its_team(start_server: Callable[..., Server]):
    """A team sees that a revoked key is still in use somewhere."""
    server = start_server()
    team = make_tenant(server, "a")
    made = team.http.post("/v1/keys", json={}).json()
    team.http.delete(f"/v1/keys/{made['id']}")
    with client(server, made["apiKey"]) as http:
        for _ in range(3):
            http.get("/v1/memories")

    found = wait_for_entries(team, action="credential.refuse")

    assert {(entry["actorId"], entry["outcome"]) for entry in found} == {(made["id"], "refused")}
    team.http.close()


def test_unknown_keys_do_not_flood_the_audit_log(start_server: Callable[..., Server]):
    """A hundred refused requests with unknown keys are one entry, of no team."""
    server = start_server()
    with client(server, None) as http, client(server, make_key(server.database, server_owner(), scopes=("*",))) as root:
        for number in range(100):
            http.get("/v1/memories", headers={"X-Api-Key": f"cmem_{number}_x"})
        deadline = time.monotonic() + 10
        refused: list[dict] = []
        while not refused and time.monotonic() < deadline:
            time.sleep(0.05)
            refused = root.get("/v1/audit", params={"action": "credential.refuse"}).json()["audit"]

    assert len(refused) == 1
    assert (refused[0]["actorId"], refused[0]["targetId"]) == (None, None)


def refusal(number: int, actor: str = "key") -> AuditEvent:
    return AuditEvent("team", None, actor, None, "memory.delete", ("memory", str(number)), "refused")


def counts(buffer: AuditBuffer) -> list[int]:
    return [event.count for event in buffer.drain().values()]


def test_a_batch_is_bounded_whatever_is_refused():
    """A key holder cannot fill the disk with refusals: the excess is counted together."""
    buffer = AuditBuffer(capacity=10)
    for number in range(1000):
        buffer.add(refusal(number), "request")
    for number in range(1000):
        buffer.add(refusal(number, actor=f"key {number}"), "request")

    batch = counts(buffer)

    assert len(batch) <= 21
    assert sum(batch) == 2000


def test_the_same_refusal_is_counted_in_one_entry():
    """A client that hammers the server causes one row per batch."""
    buffer = AuditBuffer()
    for _ in range(50):
        buffer.add(refusal(1), "request")

    assert (counts(buffer), counts(buffer)) == ([50], [])


def test_a_refused_credential_is_written_once_per_minute(monkeypatch: pytest.MonkeyPatch):
    """Immediately the first time, then aggregated; another credential does not wait for it."""
    buffer, now = AuditBuffer(), now_ms()
    refused = refusal(1)._replace(action=audit_entries.CREDENTIAL_REFUSED)
    buffer.add(refused, "request")
    assert counts(buffer) == [1]

    for _ in range(3):
        buffer.add(refused, "request")
    buffer.add(refused._replace(actor_id="another"), "request")
    assert counts(buffer) == [1]

    monkeypatch.setattr(audit_entries, "now_ms", lambda: now + 61_000)
    assert counts(buffer) == [3]


def test_a_batch_that_could_not_be_written_is_written_with_the_next():
    """Nothing is lost or counted twice."""
    buffer = AuditBuffer()
    buffer.add(refusal(1), "request")
    batch = buffer.drain()
    buffer.add(refusal(1), "request")
    buffer.add(refusal(2), "request")

    buffer.requeue(batch)

    assert sorted(counts(buffer)) == [1, 2]


@contextmanager
def reading(start_server: Callable[..., Server], **settings: object) -> Iterator[Tenant]:
    tenant = make_tenant(start_server(**settings), "a")
    yield tenant
    tenant.http.close()


def test_reads_are_audited_if_configured(start_server: Callable[..., Server]):
    """Each with its request and target; searches without their queries."""
    with reading(start_server, audit_reads=True) as team:
        memory = team.post_memory(content=SECRET_WORDS).json()["memory"]["id"]
        team.http.get(f"/v1/memories/{memory}", headers={"X-Request-Id": "read-1"})
        team.http.get(f"/v1/memories/{memory}", headers={"X-Request-Id": "read-2"})
        team.http.get("/v1/memories/none")
        team.http.post("/v1/search", json={"projectId": team.project_id, "query": SECRET_WORDS})

        searches = wait_for_entries(team, action="memories.search")
        reads = wait_for_entries(team, action="memory.get")

    assert [(entry["requestId"], entry["targetId"]) for entry in reads[::-1]] == [
        ("read-1", memory),
        ("read-2", memory),
    ]
    assert len(searches) == 1
    assert "quartz" not in str(searches + reads)


def test_reads_are_not_audited_by_default(start_server: Callable[..., Server]):
    """A refused action that comes later is written, and no read before it."""
    with reading(start_server) as team:
        team.http.get("/v1/memories")
        team.http.get("/v1/memories", params={"projectId": "none"})

        assert [entry["outcome"] for entry in wait_for_entries(team, action="memories.list")] == ["refused"]


def test_the_audit_log_holds_no_text(team: Tenant):
    """Only ids: neither contents nor queries nor names."""
    team.post_memory(content=SECRET_WORDS, title=SECRET_WORDS)
    team.http.post("/v1/search", json={"projectId": team.project_id, "query": SECRET_WORDS})
    team.http.post("/v1/keys", json={"name": SECRET_WORDS})

    assert "xylophone" not in str(entries(team))


@pytest.mark.parametrize("statement", ["UPDATE audit_log SET action = 'x'", "DELETE FROM audit_log"])
def test_the_audit_log_is_append_only(database: Database, statement: str):
    """Not even a plain database connection can change it."""
    with database.write() as connection:
        audit_entries.record(connection, server_owner(), "key.create", target=("key", "1"))

    with pytest.raises(IntegrityError), database.write() as connection:
        connection.exec_driver_sql(statement)


def test_a_server_wide_key_reads_the_audit_log_of_the_server(server: Server, team: Tenant):
    """And nothing of any team."""
    team.post_memory(content="x")
    with client(server, make_key(server.database, server_owner(), scopes=(EVERYTHING,))) as http:
        seen = http.get("/v1/audit", params={"limit": 200}).json()["audit"]

    assert "memory.create" not in {entry["action"] for entry in seen}
    assert "key.create" in {entry["action"] for entry in seen}
