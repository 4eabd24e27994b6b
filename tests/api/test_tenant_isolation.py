"""Tenant isolation: on every route, another team's data looks exactly like no data, and B never affects A."""

import hashlib
import time
import uuid
from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

import httpx
import pytest
from sqlalchemy import select

from app.services.memories import memories
from app.services.memories.memories import NewMemory
from app.store import models
from app.store.database import Database
from tests.api.route_table import TABLE, ResourceIds, Route, routes, unknown_ids
from tests.api.test_route_matrix import MatrixTeams
from tests.conftest import Server, client, make_key

REQUEST_ID = {"X-Request-Id": "the-same"}
NAMING = [route for route in routes() if route.row.names is not None]


class TwoTeams(MatrixTeams):
    """Team A has data; team B has a key with every scope."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.a, self.a_project = self.make_team()
        self.b, self.b_project = self.make_team()
        self.as_a = client(server, make_key(server.database, self.a, scopes=("*",)))
        self.as_b = client(server, make_key(server.database, self.b, scopes=("*",)))
        self.of_a = self.create_resources(self.a, self.a_project)
        self.of_b = self.create_resources(self.b, self.b_project)

    def close(self) -> None:
        self.as_a.close()
        self.as_b.close()


@pytest.fixture(scope="module")
def teams(server: Server) -> Iterator[TwoTeams]:
    teams = TwoTeams(server)
    yield teams
    teams.close()


def digest_of_rows(database: Database, team_id: str) -> str:
    """Return a digest of all rows of a team, without its audit log and the usage of its keys: those grow anyway."""
    digest = hashlib.sha256()
    with database.read() as connection:
        for table in models.metadata.sorted_tables:
            if "team_id" in table.c and table.name not in ("usage_counters", "audit_log"):
                columns = [column for column in table.c if column.name != "last_used_at_epoch"]
                statement = select(*columns).where(table.c.team_id == team_id).order_by(*table.primary_key)
                digest.update(repr(connection.execute(statement).fetchall()).encode())
    return digest.hexdigest()


def shape(value: Any) -> Any:
    """Return a body with the types of its values in place of the values."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value).__name__


def visible_parts(reply: httpx.Response, ids: ResourceIds) -> tuple[Any, ...]:
    """Return everything that a reply reveals, without the ids that the request named."""
    text = reply.text
    for each in fields(ids):
        text = text.replace(getattr(ids, each.name), f"<{each.name}>")
    headers = {name: value for name, value in reply.headers.items() if name not in ("date", "content-length")}
    return reply.status_code, text, shape(reply.json()), headers


@pytest.mark.parametrize("route", NAMING, ids=lambda route: route.operation_id)
def test_foreign_ids_look_like_unknown_ids(teams: TwoTeams, route: Route):
    """A's real ids and random ones: the same status, body and headers, and A's rows do not change."""
    before = digest_of_rows(teams.server.database, teams.of_a.team)
    unknown = unknown_ids()

    of_a = route.send(teams.as_b, teams.of_a, REQUEST_ID)
    of_nobody = route.send(teams.as_b, unknown, REQUEST_ID)

    assert visible_parts(of_a, teams.of_a) == visible_parts(of_nobody, unknown)
    assert of_a.status_code == (404 if route.row.names == "id" else 403)
    assert digest_of_rows(teams.server.database, teams.of_a.team) == before


MIXED = [
    route
    for route in NAMING
    if (route.row.names == "id" and len([part for part in route.path.split("/") if part.startswith("{")]) > 1)
]


@pytest.mark.parametrize("route", MIXED, ids=lambda route: route.operation_id)
def test_own_team_in_the_path_does_not_expose_a_foreign_id(teams: TwoTeams, route: Route):
    """B's team in the path, followed by A's member."""
    half = replace(teams.of_a, team=teams.of_b.team)

    assert route.send(teams.as_b, half).status_code == 404


REFERENCES = {
    "createMemory": lambda b, a: {"projectId": b.project, "content": "x", "serverSessionId": a.session},
    "createMemory superseded": lambda b, a: {"projectId": b.project, "content": "y", "supersededBy": a.memory},
    "createEvent": lambda b, a: {
        "projectId": b.project,
        "sourceType": "s",
        "eventType": "t",
        "occurredAtEpoch": 1,
        "serverSessionId": a.session,
    },
    "updateMemory": lambda b, a: {"serverSessionId": a.session},
    "updateMemory superseded": lambda b, a: {"supersededBy": a.memory},
    "createKey": lambda b, a: {"userId": a.member},
}


@pytest.mark.parametrize("name", REFERENCES)
def test_body_cannot_refer_to_foreign_ids(teams: TwoTeams, name: str):
    """A's id in a body is not found, just like a random one."""
    route = next(one for one in routes() if one.operation_id == name.split()[0])
    replies = []
    for ids in (teams.of_a, unknown := unknown_ids()):
        sent = replace(route, row=replace(route.row, body=lambda b, a=ids: REFERENCES[name](b, a)))
        replies.append(visible_parts(sent.send(teams.as_b, teams.of_b, REQUEST_ID), ids))

    assert replies[0] == replies[1]
    assert replies[0][0] == 404
    assert unknown.memory != teams.of_a.memory


@pytest.mark.parametrize("path", ["/v1/memories/batch", "/v1/events/batch"])
def test_batch_with_a_foreign_project_stores_nothing(teams: TwoTeams, path: str):
    """All or nothing: neither the own row nor the foreign one is stored."""
    row = TABLE["createMemories" if "memories" in path else "createEvents"]
    assert row.body is not None
    own, foreign = row.body(teams.of_b)[0], row.body(teams.of_a)[0]
    before = [digest_of_rows(teams.server.database, team) for team in (teams.of_a.team, teams.of_b.team)]

    reply = teams.as_b.post(path, json=[own, foreign])

    assert reply.status_code == 403
    assert [digest_of_rows(teams.server.database, team) for team in (teams.of_a.team, teams.of_b.team)] == before


def test_search_across_own_and_foreign_projects_is_refused(teams: TwoTeams):
    """One foreign project among several refuses the whole search."""
    projects = [teams.of_b.project, teams.of_a.project]

    for path in ("/v1/search", "/v1/context"):
        reply = teams.as_b.post(path, json={"projectIds": projects, "query": "memory"})
        assert (reply.status_code, "memories" in reply.json()) == (403, False)


FILTERS: list[dict[str, Any]] = [
    {"kinds": ["manual"]},
    {"types": ["secret-type"]},
    {"concepts": ["secret-concept"]},
    {"files": ["secret/file.py"]},
    {"platformSource": "secret-platform"},
    {"createdAfter": 0},
    {"createdBefore": 253_402_300_799_999},
]


@pytest.mark.parametrize("mode", ["auto", "hybrid", "keyword", "semantic"])
@pytest.mark.parametrize("filtered", FILTERS, ids=lambda one: next(iter(one)))
def test_no_mode_or_filter_finds_foreign_memories(teams: TwoTeams, mode: str, filtered: dict[str, Any]):
    """A has the only match; B searches for it in a project of its own."""
    secret = {
        "title": "zephyr quokka",
        "type": "secret-type",
        "concepts": ["secret-concept"],
        "filesRead": ["secret/file.py"],
        "platformSource": "secret-platform",
    }
    teams.as_a.post("/v1/memories", json={"projectId": teams.of_a.project, **secret})
    query = {"query": "zephyr quokka", "mode": mode, **filtered}

    found = teams.as_b.post("/v1/search", json={"projectId": teams.of_b.project, **query}).json()
    own = teams.as_a.post("/v1/search", json={"projectId": teams.of_a.project, "query": "zephyr quokka"}).json()

    assert [memory for memory in found["memories"] if "zephyr" in str(memory)] == []
    assert len(own["memories"]) == 1


@pytest.mark.parametrize("field", ["actorId", "targetId"])
def test_audit_filters_find_no_foreign_entries(teams: TwoTeams, field: str):
    """With A's real ids as filters: empty, and no next page."""
    for target in (teams.of_a.memory, teams.of_a.key, teams.of_a.team):
        found = teams.as_b.get("/v1/audit", params={field: target}).json()
        assert found == {"audit": [], "nextCursor": None}


def test_usage_does_not_count_foreign_requests(teams: TwoTeams):
    """A's requests do not count for B."""
    before = teams.as_b.get("/v1/usage").json()
    for _ in range(5):
        teams.as_a.get("/v1/memories")

    assert teams.as_b.get("/v1/usage").json()["total"] == before["total"] + 1


def test_lists_contain_no_foreign_ids(teams: TwoTeams):
    """Every list of B, all pages, without a single id of A."""
    lists = [
        "teams",
        "projects",
        "keys",
        "sessions",
        "events",
        "memories",
        "audit",
        f"teams/{teams.of_b.team}/members",
    ]
    text = ""
    for path in lists:
        cursor = None
        while True:
            params = {"limit": 200, **({"cursor": cursor} if cursor else {})}
            page = teams.as_b.get(f"/v1/{path}", params=params)
            assert page.status_code == 200, page.text
            text += page.text
            if (cursor := page.json()["nextCursor"]) is None:
                break

    assert [one.name for one in fields(ResourceIds) if getattr(teams.of_a, one.name) in text] == []
    assert teams.of_b.memory in text


@pytest.mark.parametrize("path", ["projects", "keys", "sessions", "events", "memories", "audit"])
def test_foreign_cursor_is_rejected(teams: TwoTeams, path: str):
    """A's cursor is invalid in B's list."""
    teams.create_resources(teams.a, teams.a_project)
    teams.as_a.post("/v1/projects", json={"name": "second"})
    cursor = teams.as_a.get(f"/v1/{path}", params={"limit": 1}).json()["nextCursor"]
    assert cursor is not None

    assert teams.as_b.get(f"/v1/{path}", params={"limit": 1, "cursor": cursor}).status_code == 400


def test_foreign_search_cursor_is_rejected(teams: TwoTeams):
    """So is a position in A's ranking."""
    for number in range(3):
        body = {"projectId": teams.of_a.project, "content": f"ranked {number} {uuid.uuid4()}"}
        teams.as_a.post("/v1/memories", json=body)
    query = {"query": "ranked", "limit": 1}
    cursor = teams.as_a.post("/v1/search", json={**query, "projectId": teams.of_a.project}).json()["nextCursor"]

    reply = teams.as_b.post("/v1/search", json={**query, "projectId": teams.of_b.project, "cursor": cursor})

    assert reply.status_code == 400


def test_idempotency_keys_of_teams_are_independent(teams: TwoTeams):
    """The same Idempotency-Key in two teams: nothing is replayed across them."""
    headers = {"Idempotency-Key": "shared"}
    replies = [
        http.post("/v1/memories", json={"projectId": project, "content": "same"}, headers=headers)
        for http, project in ((teams.as_a, teams.of_a.project), (teams.as_b, teams.of_b.project))
    ]

    assert [reply.status_code for reply in replies] == [201, 201]
    assert "Idempotent-Replayed" not in replies[1].headers
    assert replies[0].json()["memory"]["id"] != replies[1].json()["memory"]["id"]


def test_foreign_etag_reveals_nothing(teams: TwoTeams):
    """A's ETag for A's memory: not found, whether it is current or not."""
    etag = teams.as_a.get(f"/v1/memories/{teams.of_a.memory}").headers["ETag"]
    replies = [
        teams.as_b.patch(f"/v1/memories/{memory}", json={"title": "x"}, headers={"If-Match": value})
        for memory in (teams.of_a.memory, str(uuid.uuid4()))
        for value in (etag, '"0"')
    ]

    assert [reply.status_code for reply in replies] == [404] * 4


def test_equal_content_is_stored_once_per_team(teams: TwoTeams):
    """Deduplication does not cross teams."""
    body = {"content": "word for word"}
    first = teams.as_a.post("/v1/memories", json={"projectId": teams.of_a.project, **body}).json()
    second = teams.as_b.post("/v1/memories", json={"projectId": teams.of_b.project, **body})

    assert (second.status_code, second.json()["deduplicated"]) == (201, False)
    assert second.json()["memory"]["id"] != first["memory"]["id"]


def test_slugs_and_root_paths_may_repeat_across_teams(teams: TwoTeams):
    """A name that one team uses is free in another."""
    body = {"name": "Shared", "slug": "shared", "rootPath": "/srv/shared"}

    replies = [http.post("/v1/projects", json=body) for http in (teams.as_a, teams.as_b)]

    assert [reply.status_code for reply in replies] == [201, 201]


WORDS = ["gateway", "timeout", "bank", "retry", "invoice", "ledger", "queue", "shard", "replica", "quorum"]
MANY = 10_000


def observe_a(teams: TwoTeams) -> list[Any]:
    """Return what A sees: searches, scores, contexts, lists and statistics, without what depends on time."""
    project = {"projectId": teams.of_a.project}
    replies = [teams.as_a.post("/v1/search", json={**project, "query": " ".join(WORDS[:2]), "explain": True})]
    replies += [teams.as_a.post("/v1/search", json={**project, "query": word, "limit": 50}) for word in WORDS]
    replies += [teams.as_a.post("/v1/context", json={**project, "query": word}) for word in WORDS[:3]]
    replies += [teams.as_a.get(f"/v1/projects/{teams.of_a.project}/stats")]
    replies += [teams.as_a.get("/v1/memories", params=project), teams.as_a.get("/v1/projects")]
    bodies = [reply.json() for reply in replies]
    for body in bodies:
        body.get("search", {}).pop("durationMs", None)
        body.get("stats", {}).get("vectors", {}).pop("oldestPendingSeconds", None)
    return bodies


def median_milliseconds(teams: TwoTeams) -> float:
    times = []
    for number in range(60):
        body = {"projectId": teams.of_a.project, "query": WORDS[number % len(WORDS)]}
        started = time.perf_counter()
        teams.as_a.post("/v1/search", json=body)
        times.append((time.perf_counter() - started) * 1000)
    return sorted(times)[len(times) // 2]


def test_rows_of_another_team_change_no_result(teams: TwoTeams):
    """B writes ten thousand rows with A's words and names; A's searches, contexts and statistics stay the same."""
    for number in range(30):
        content = " ".join(WORDS[(number + step) % len(WORDS)] for step in range(number % 5 + 1)) + f" {number}"
        teams.as_a.post("/v1/memories", json={"projectId": teams.of_a.project, "title": "A", "content": content})
    before, took = observe_a(teams), median_milliseconds(teams)

    for start in range(0, MANY, 1_000):
        with teams.server.database.write() as connection:
            for number in range(start, start + 1_000):
                content = " ".join(WORDS[(number + step) % len(WORDS)] for step in range(4)) + f" {number}"
                new = NewMemory(
                    project_id=teams.of_b.project, kind="manual", type="manual", title="A", narrative=content
                )
                memories.insert_once(connection, teams.b, new)

    assert observe_a(teams) == before
    assert median_milliseconds(teams) < 3 * took + 5
