"""The stranger: what another team has looks exactly like what nobody has, on every route, and B never moves A."""

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
from tests.api.route_table import TABLE, Route, Things, nobodys, routes
from tests.api.test_route_matrix import World
from tests.conftest import Server, client, make_key

REQUEST_ID = {"X-Request-Id": "the-same"}
NAMING = [route for route in routes() if route.row.names is not None]


class Stranger(World):
    """Two teams: A has things, B has a key for all that a key can do."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.a, self.a_project = self.make_team()
        self.b, self.b_project = self.make_team()
        self.as_a = client(server, make_key(server.database, self.a, scopes=("*",)))
        self.as_b = client(server, make_key(server.database, self.b, scopes=("*",)))
        self.of_a = self.things(self.a, self.a_project)
        self.of_b = self.things(self.b, self.b_project)

    def close(self) -> None:
        self.as_a.close()
        self.as_b.close()


@pytest.fixture(scope="module")
def stranger(server: Server) -> Iterator[Stranger]:
    made = Stranger(server)
    yield made
    made.close()


def rows(database: Database, team_id: str) -> str:
    """Return a digest of every row of a team; what is noted about its keys and the log of what it did grow anyway."""
    digest = hashlib.sha256()
    with database.read() as connection:
        for table in models.metadata.sorted_tables:
            if "team_id" in table.c and table.name not in ("usage_counters", "audit_log"):
                wanted = [column for column in table.c if column.name != "last_used_at_epoch"]
                statement = select(*wanted).where(table.c.team_id == team_id).order_by(*table.primary_key)
                digest.update(repr(connection.execute(statement).fetchall()).encode())
    return digest.hexdigest()


def shape(value: Any) -> Any:
    """Return a body with its keys, and kinds in the place of values."""
    if isinstance(value, dict):
        return {name: shape(inner) for name, inner in value.items()}
    return [shape(inner) for inner in value] if isinstance(value, list) else type(value).__name__


def seen(reply: httpx.Response, things: Things) -> tuple[Any, ...]:
    """Return everything that a reply tells, with the ids that were asked for taken out."""
    text = reply.text
    for asked in fields(things):
        text = text.replace(getattr(things, asked.name), f"<{asked.name}>")
    headers = {name: value for name, value in reply.headers.items() if name not in ("date", "content-length")}
    return reply.status_code, text, shape(reply.json()), headers


@pytest.mark.parametrize("route", NAMING, ids=lambda route: route.operation_id)
def test_stranger_sees_no_difference(stranger: Stranger, route: Route):
    """A's real ids and random ones: the same status, body and headers, and A's rows stay as they are."""
    before = rows(stranger.server.database, stranger.of_a.team)
    nothing = nobodys()

    of_a = route.send(stranger.as_b, stranger.of_a, REQUEST_ID)
    of_nobody = route.send(stranger.as_b, nothing, REQUEST_ID)

    assert seen(of_a, stranger.of_a) == seen(of_nobody, nothing)
    assert of_a.status_code == (404 if route.row.names == "id" else 403)
    assert rows(stranger.server.database, stranger.of_a.team) == before


MIXED = [
    route
    for route in NAMING
    if (route.row.names == "id" and len([part for part in route.path.split("/") if part.startswith("{")]) > 1)
]


@pytest.mark.parametrize("route", MIXED, ids=lambda route: route.operation_id)
def test_stranger_gets_nothing_by_naming_his_own_team_beside(stranger: Stranger, route: Route):
    """B's team in the path and A's member behind it."""
    half = replace(stranger.of_a, team=stranger.of_b.team)

    assert route.send(stranger.as_b, half).status_code == 404


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
def test_stranger_refers_to_nothing_of_others(stranger: Stranger, name: str):
    """A reference in a body: A's id is not found, as a random one is not."""
    route = next(one for one in routes() if one.operation_id == name.split()[0])
    replies = []
    for things in (stranger.of_a, nothing := nobodys()):
        sent = replace(route, row=replace(route.row, body=lambda b, a=things: REFERENCES[name](b, a)))
        replies.append(seen(sent.send(stranger.as_b, stranger.of_b, REQUEST_ID), things))

    assert replies[0] == replies[1]
    assert replies[0][0] == 404
    assert nothing.memory != stranger.of_a.memory


@pytest.mark.parametrize("path", ["/v1/memories/batch", "/v1/events/batch"])
def test_stranger_batch_with_one_foreign_project_stores_nothing(stranger: Stranger, path: str):
    """All or nothing: one own and one foreign row, and neither is there."""
    row = TABLE["createMemories" if "memories" in path else "createEvents"]
    assert row.body is not None
    own, foreign = row.body(stranger.of_b)[0], row.body(stranger.of_a)[0]
    before = [rows(stranger.server.database, team) for team in (stranger.of_a.team, stranger.of_b.team)]

    reply = stranger.as_b.post(path, json=[own, foreign])

    assert reply.status_code == 403
    assert [rows(stranger.server.database, team) for team in (stranger.of_a.team, stranger.of_b.team)] == before


def test_stranger_search_over_an_own_and_a_foreign_project_is_refused(stranger: Stranger):
    """One foreign project among many refuses them all, with no hit of either."""
    projects = [stranger.of_b.project, stranger.of_a.project]

    for path in ("/v1/search", "/v1/context"):
        reply = stranger.as_b.post(path, json={"projectIds": projects, "query": "memory"})
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
def test_stranger_finds_nothing_of_others_by_any_mode_and_filter(
    stranger: Stranger, mode: str, filtered: dict[str, Any]
):
    """A holds the only match; B asks for it in his own project."""
    secret = {
        "title": "zephyr quokka",
        "type": "secret-type",
        "concepts": ["secret-concept"],
        "filesRead": ["secret/file.py"],
        "platformSource": "secret-platform",
    }
    stranger.as_a.post("/v1/memories", json={"projectId": stranger.of_a.project, **secret})
    asked = {"query": "zephyr quokka", "mode": mode, **filtered}

    found = stranger.as_b.post("/v1/search", json={"projectId": stranger.of_b.project, **asked}).json()
    own = stranger.as_a.post("/v1/search", json={"projectId": stranger.of_a.project, "query": "zephyr quokka"}).json()

    assert [memory for memory in found["memories"] if "zephyr" in str(memory)] == []
    assert len(own["memories"]) == 1


@pytest.mark.parametrize("field", ["actorId", "targetId"])
def test_stranger_finds_no_audit_of_others(stranger: Stranger, field: str):
    """With A's real ids as filters: empty, and no next page."""
    for target in (stranger.of_a.memory, stranger.of_a.key, stranger.of_a.team):
        found = stranger.as_b.get("/v1/audit", params={field: target}).json()
        assert found == {"audit": [], "nextCursor": None}


def test_stranger_usage_counts_nothing_of_others(stranger: Stranger):
    """What A asks for is no request of B's."""
    before = stranger.as_b.get("/v1/usage").json()
    for _ in range(5):
        stranger.as_a.get("/v1/memories")

    assert stranger.as_b.get("/v1/usage").json()["total"] == before["total"] + 1


def test_stranger_lists_hold_nothing_of_others(stranger: Stranger):
    """Every list of B, all pages, without a single id of A."""
    lists = [
        "teams",
        "projects",
        "keys",
        "sessions",
        "events",
        "memories",
        "audit",
        f"teams/{stranger.of_b.team}/members",
    ]
    text = ""
    for path in lists:
        cursor = None
        while True:
            params = {"limit": 200, **({"cursor": cursor} if cursor else {})}
            page = stranger.as_b.get(f"/v1/{path}", params=params)
            assert page.status_code == 200, page.text
            text += page.text
            if (cursor := page.json()["nextCursor"]) is None:
                break

    assert [one.name for one in fields(Things) if getattr(stranger.of_a, one.name) in text] == []
    assert stranger.of_b.memory in text


@pytest.mark.parametrize("path", ["projects", "keys", "sessions", "events", "memories", "audit"])
def test_stranger_cursor_is_of_no_use(stranger: Stranger, path: str):
    """A's cursor is no cursor of B's list."""
    stranger.things(stranger.a, stranger.a_project)
    stranger.as_a.post("/v1/projects", json={"name": "second"})
    cursor = stranger.as_a.get(f"/v1/{path}", params={"limit": 1}).json()["nextCursor"]
    assert cursor is not None

    assert stranger.as_b.get(f"/v1/{path}", params={"limit": 1, "cursor": cursor}).status_code == 400


def test_stranger_search_cursor_is_of_no_use(stranger: Stranger):
    """Nor is the place in A's ranking."""
    for number in range(3):
        body = {"projectId": stranger.of_a.project, "content": f"ranked {number} {uuid.uuid4()}"}
        stranger.as_a.post("/v1/memories", json=body)
    asked = {"query": "ranked", "limit": 1}
    cursor = stranger.as_a.post("/v1/search", json={**asked, "projectId": stranger.of_a.project}).json()["nextCursor"]

    reply = stranger.as_b.post("/v1/search", json={**asked, "projectId": stranger.of_b.project, "cursor": cursor})

    assert reply.status_code == 400


def test_stranger_idempotency_key_is_another_one(stranger: Stranger):
    """The same Idempotency-Key of two keys is two: nothing is replayed across."""
    once = {"Idempotency-Key": "shared"}
    replies = [
        http.post("/v1/memories", json={"projectId": project, "content": "same"}, headers=once)
        for http, project in ((stranger.as_a, stranger.of_a.project), (stranger.as_b, stranger.of_b.project))
    ]

    assert [reply.status_code for reply in replies] == [201, 201]
    assert "Idempotent-Replayed" not in replies[1].headers
    assert replies[0].json()["memory"]["id"] != replies[1].json()["memory"]["id"]


def test_stranger_etag_opens_nothing(stranger: Stranger):
    """A's ETag on A's memory: not found, and no word about whether it still holds."""
    etag = stranger.as_a.get(f"/v1/memories/{stranger.of_a.memory}").headers["ETag"]
    replies = [
        stranger.as_b.patch(f"/v1/memories/{memory}", json={"title": "x"}, headers={"If-Match": value})
        for memory in (stranger.of_a.memory, str(uuid.uuid4()))
        for value in (etag, '"0"')
    ]

    assert [reply.status_code for reply in replies] == [404] * 4


def test_stranger_stores_the_same_content_and_gets_a_row_of_his_own(stranger: Stranger):
    """Deduplication ends at the wall."""
    body = {"content": "word for word"}
    first = stranger.as_a.post("/v1/memories", json={"projectId": stranger.of_a.project, **body}).json()
    second = stranger.as_b.post("/v1/memories", json={"projectId": stranger.of_b.project, **body})

    assert (second.status_code, second.json()["deduplicated"]) == (201, False)
    assert second.json()["memory"]["id"] != first["memory"]["id"]


def test_stranger_takes_no_names_from_others(stranger: Stranger):
    """Slugs and root paths of projects are free in another team."""
    body = {"name": "Shared", "slug": "shared", "rootPath": "/srv/shared"}

    replies = [http.post("/v1/projects", json=body) for http in (stranger.as_a, stranger.as_b)]

    assert [reply.status_code for reply in replies] == [201, 201]


WORDS = ["gateway", "timeout", "bank", "retry", "invoice", "ledger", "queue", "shard", "replica", "quorum"]
MANY = 10_000


def observed(stranger: Stranger) -> list[Any]:
    """Return what A sees: searches, scores, contexts, lists and numbers, without what tells the time."""
    project = {"projectId": stranger.of_a.project}
    replies = [stranger.as_a.post("/v1/search", json={**project, "query": " ".join(WORDS[:2]), "explain": True})]
    replies += [stranger.as_a.post("/v1/search", json={**project, "query": word, "limit": 50}) for word in WORDS]
    replies += [stranger.as_a.post("/v1/context", json={**project, "query": word}) for word in WORDS[:3]]
    replies += [stranger.as_a.get(f"/v1/projects/{stranger.of_a.project}/stats")]
    replies += [stranger.as_a.get("/v1/memories", params=project), stranger.as_a.get("/v1/projects")]
    bodies = [reply.json() for reply in replies]
    for body in bodies:
        body.get("search", {}).pop("durationMs", None)
        body.get("stats", {}).get("vectors", {}).pop("oldestPendingSeconds", None)
    return bodies


def median_milliseconds(stranger: Stranger) -> float:
    times = []
    for number in range(60):
        asked = {"projectId": stranger.of_a.project, "query": WORDS[number % len(WORDS)]}
        started = time.perf_counter()
        stranger.as_a.post("/v1/search", json=asked)
        times.append((time.perf_counter() - started) * 1000)
    return sorted(times)[len(times) // 2]


def test_stranger_rows_change_nothing_for_others(stranger: Stranger):
    """B writes ten thousand rows with A's words and names: A's searches, scores, contexts and statistics stay equal."""
    for number in range(30):
        content = " ".join(WORDS[(number + step) % len(WORDS)] for step in range(number % 5 + 1)) + f" {number}"
        stranger.as_a.post("/v1/memories", json={"projectId": stranger.of_a.project, "title": "A", "content": content})
    before, took = observed(stranger), median_milliseconds(stranger)

    for start in range(0, MANY, 1_000):
        with stranger.server.database.write() as connection:
            for number in range(start, start + 1_000):
                content = " ".join(WORDS[(number + step) % len(WORDS)] for step in range(4)) + f" {number}"
                new = NewMemory(
                    project_id=stranger.of_b.project, kind="manual", type="manual", title="A", narrative=content
                )
                memories.insert_once(connection, stranger.b, new)

    assert observed(stranger) == before
    assert median_milliseconds(stranger) < 3 * took + 5
