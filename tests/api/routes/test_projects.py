"""/v1/projects over HTTP."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from sqlalchemy import text

from app.services.projects import projects as service
from tests.conftest import Server, Tenant, client, make_key
from tests.problems import code_of

AsTeam = Callable[[str], Tenant]


def create(team: Tenant, **fields: Any) -> httpx.Response:
    return team.http.post("/v1/projects", json={"name": "n", **fields})


def made(team: Tenant, **fields: Any) -> dict[str, Any]:
    reply = create(team, **fields)
    assert reply.status_code == 201, reply.text
    return dict(reply.json()["project"])


def test_a_project_comes_back_as_it_was_sent(team: Tenant):
    """Under its noun, with the documented keys, and at the `Location`."""
    fields = {"name": "Shop", "slug": "shop", "rootPath": "/home/dev/shop", "metadata": {"a": [1]}}
    reply = create(team, **fields)
    project = reply.json()["project"]

    assert {name: project[name] for name in fields} == fields
    assert set(project) == {*fields, "id", "teamId", "createdAtEpoch", "updatedAtEpoch"}
    assert team.http.get(reply.headers["Location"]).json() == {"project": project}


@pytest.mark.parametrize(
    ("name", "slug"),
    [("My Shop!", "my-shop"), ("支付 网关", "支付-网关"), ("---", "project"), ("Ünïcode_x", "ünïcode-x")],
)
def test_a_slug_is_derived_from_the_name(team: Tenant, name: str, slug: str):
    """In any script; one that would be empty is `project`."""
    assert made(team, name=name)["slug"] == slug


def test_derived_slugs_are_unique(team: Tenant):
    """Names need not be unique; a number is appended if needed."""
    assert [made(team, name="Same")["slug"] for _ in range(3)] == ["same", "same-2", "same-3"]


@pytest.mark.parametrize("slug", ["A", "a b", "-a", "a--b", "a/b", "x" * 101])
def test_a_malformed_slug_is_refused(team: Tenant, slug: str):
    """A slug must have a form that could be derived from a name."""
    assert code_of(create(team, slug=slug)) == (400, "ValidationError")


@pytest.mark.parametrize("name", ["", " ", "x" * 301, 7, None])
def test_a_blank_name_is_refused(team: Tenant, name: Any):
    """So is a missing one, or one that is too long."""
    assert code_of(create(team, name=name)) == (400, "ValidationError")


@pytest.mark.parametrize("field", [{"slug": "taken"}, {"rootPath": "/taken"}])
def test_slug_and_root_path_are_unique_within_the_team(as_team: AsTeam, field: dict[str, str]):
    """A duplicate is a 409 that names the field; another team may use it."""
    made(as_team("a"), **field)

    taken = create(as_team("a"), **field)

    assert code_of(taken) == (409, "Conflict")
    assert next(iter(field)) in taken.json()["detail"]
    assert create(as_team("b"), **field).status_code == 201


def test_of_two_at_once_one_gets_the_slug(team: Tenant):
    """Racing creations end as one 201 and conflicts, never as an error of the server."""
    with ThreadPoolExecutor(8) as pool:
        codes = [reply.status_code for reply in pool.map(lambda _: create(team, slug="raced"), range(8))]

    assert sorted(codes) == [201] + [409] * 7


def test_a_project_can_be_changed(team: Tenant):
    """Fields that are sent change, null clears, the rest is kept."""
    project = made(team, name="old", rootPath="/p", metadata={"a": 1})
    path = f"/v1/projects/{project['id']}"

    changed = team.http.patch(path, json={"name": "new", "rootPath": None, "metadata": {"b": 2}}).json()["project"]

    assert changed == {
        **project,
        "name": "new",
        "rootPath": None,
        "metadata": {"b": 2},
        "updatedAtEpoch": changed["updatedAtEpoch"],
    }
    assert team.http.get(path).json()["project"] == changed


@pytest.mark.parametrize("change", [{"name": None}, {"slug": None}, {"slug": "A"}, {"id": "x"}, {"teamId": "x"}])
def test_a_malformed_change_is_refused(team: Tenant, change: dict[str, Any]):
    """Name and slug cannot be cleared; identity and team cannot be changed."""
    assert code_of(team.http.patch(f"/v1/projects/{team.project_id}", json=change)) == (400, "ValidationError")


def test_a_change_to_a_taken_slug_is_refused(team: Tenant):
    """409; a project can keep its own slug without a conflict."""
    made(team, slug="taken")
    path = f"/v1/projects/{made(team, slug='own')['id']}"

    assert code_of(team.http.patch(path, json={"slug": "taken"})) == (409, "Conflict")
    assert team.http.patch(path, json={"slug": "own"}).status_code == 200


def test_projects_are_listed_newest_first(team: Tenant):
    """Page by page, each once."""
    expected = [team.project_id, *(made(team)["id"] for _ in range(3))][::-1]
    first = team.http.get("/v1/projects", params={"limit": 3}).json()
    second = team.http.get("/v1/projects", params={"limit": 3, "cursor": first["nextCursor"]}).json()

    assert [project["id"] for project in first["projects"] + second["projects"]] == expected
    assert second["nextCursor"] is None


@pytest.mark.parametrize(
    ("verb", "suffix"), [("GET", ""), ("PATCH", ""), ("DELETE", ""), ("GET", "/stats"), ("DELETE", "/memory")]
)
def test_a_foreign_project_looks_missing(as_team: AsTeam, verb: str, suffix: str):
    """In a path, another team's project is 404, exactly like one that never existed."""
    foreign, http = as_team("b").project_id, as_team("a").http
    body = {"json": {"name": "x"}} if verb == "PATCH" else {}

    def seen(project_id: str) -> dict[str, Any]:
        reply = http.request(verb, f"/v1/projects/{project_id}{suffix}", **body)
        assert code_of(reply) == (404, "NotFound")
        return {**reply.json(), "instance": "", "requestId": ""}

    assert seen(foreign) == seen("0" * 36) == seen("odd")
    assert as_team("b").http.get(f"/v1/projects/{foreign}").status_code == 200


def test_a_project_key_sees_its_own_project_and_creates_none(team: Tenant, server: Server):
    """It lists one project, finds no other, and cannot create any."""
    other = made(team)["id"]
    key = make_key(server.database, team.caller, scopes=("*",), project_id=team.project_id)

    with client(server, key) as http:
        assert [each["id"] for each in http.get("/v1/projects").json()["projects"]] == [team.project_id]
        assert code_of(http.get(f"/v1/projects/{other}")) == (404, "NotFound")
        assert code_of(http.post("/v1/projects", json={"name": "x"})) == (403, "Forbidden")


def filled(team: Tenant, rows: int) -> None:
    """Give the team's project a session with events and memories."""
    place = {"projectId": team.project_id}
    session = team.http.post("/v1/sessions/start", json={**place, "externalSessionId": "s"}).json()["session"]["id"]
    texts = [{**place, "content": f"lighthouse {number}", "serverSessionId": session} for number in range(rows)]
    assert team.http.post("/v1/memories/batch", json=texts).status_code == 201
    events = [
        {**place, "sourceType": "hook", "eventType": "x", "occurredAtEpoch": number, "serverSessionId": session}
        for number in range(rows)
    ]
    assert team.http.post("/v1/events/batch", json=events).status_code == 201


def counts(team: Tenant, server: Server) -> dict[str, int]:
    tables = ("server_sessions", "agent_events", "memory_items", "project_statistics")
    with server.database.read() as connection:
        return {
            table: connection.execute(
                text(f"SELECT count(*) FROM {table} WHERE project_id = :id"), {"id": team.project_id}
            ).scalar_one()
            for table in tables
        }


def test_deleting_a_project_deletes_everything_in_it(team: Tenant, server: Server, monkeypatch: pytest.MonkeyPatch):
    """Sessions, events, memories and keys go with it, batch by batch, and its slug is free again."""
    monkeypatch.setattr(service, "DELETE_BATCH_ROWS", 7)
    filled(team, 30)
    key = make_key(server.database, team.caller, scopes=("*",), project_id=team.project_id)
    path = f"/v1/projects/{team.project_id}"
    slug = team.http.get(path).json()["project"]["slug"]

    deleted = team.http.delete(path)

    assert (deleted.status_code, deleted.json()) == (200, {"deleted": True, "id": team.project_id})
    assert set(counts(team, server).values()) == {0}
    assert code_of(team.http.get(path)) == (404, "NotFound")
    with client(server, key) as http:
        assert http.get("/v1/memories").status_code == 401
    assert create(team, slug=slug).status_code == 201


def test_purging_a_project_deletes_only_its_memories(team: Tenant, server: Server, monkeypatch: pytest.MonkeyPatch):
    """The project, its sessions and events are kept; search finds nothing; the audit log has one entry with a count."""
    monkeypatch.setattr(service, "DELETE_BATCH_ROWS", 7)
    filled(team, 30)

    purged = team.http.delete(f"/v1/projects/{team.project_id}/memory")

    assert purged.json() == {"purged": True, "projectId": team.project_id, "counts": {"memories": 30}}
    left = counts(team, server)
    assert (left["memory_items"], left["agent_events"], left["server_sessions"]) == (0, 30, 1)
    found = team.http.post("/v1/search", json={"projectId": team.project_id, "query": "lighthouse"})
    assert found.json()["memories"] == []
    entries = team.http.get("/v1/audit", params={"action": "project.purge"}).json()["audit"]
    assert [entry["count"] for entry in entries] == [30]


def test_a_purge_ends_while_others_keep_writing(team: Tenant, server: Server, monkeypatch: pytest.MonkeyPatch):
    """What is written during a purge is kept, and does not prolong the purge forever."""
    monkeypatch.setattr(service, "DELETE_BATCH_ROWS", 1)
    filled(team, 30)

    with ThreadPoolExecutor(2) as pool:
        purging = pool.submit(team.http.delete, f"/v1/projects/{team.project_id}/memory")
        number = 0
        while not purging.done():
            assert team.post_memory(content=f"meanwhile {number}").status_code == 201
            number += 1

    assert purging.result().json()["counts"]["memories"] >= 30


def test_statistics_count_what_a_project_holds(team: Tenant):
    """By kind, type and day, with bytes and what the vector index still waits for."""
    place = {"projectId": team.project_id}
    team.http.post("/v1/sessions/start", json={**place, "externalSessionId": "s"})
    event = {**place, "sourceType": "hook", "eventType": "x", "occurredAtEpoch": 1}
    team.http.post("/v1/events", json=event)
    day = 1_800_000_000_000
    team.post_memory(content="日本", kind="summary", createdAtEpoch=day)
    team.post_memory(content="b", type="bugfix", createdAtEpoch=day + 86_400_000)
    team.post_memory(content="c", createdAtEpoch=day)
    before = team.http.get(f"/v1/projects/{team.project_id}/stats").json()["stats"]["storageBytes"]
    team.post_memory(content="é" * 1000, createdAtEpoch=day)

    stats = team.http.get(f"/v1/projects/{team.project_id}/stats").json()["stats"]

    assert 2000 <= stats.pop("storageBytes") - before <= 4000
    assert stats.pop("vectors").keys() == {"pending", "failed", "oldestPendingSeconds"}
    assert stats == {
        "projectId": team.project_id,
        "memories": 4,
        "sessions": 1,
        "events": 1,
        "byKind": {"manual": 3, "summary": 1},
        "byType": {"bugfix": 1, "manual": 2, "summary": 1},
        "byDay": {"2027-01-15": 3, "2027-01-16": 1},
    }
