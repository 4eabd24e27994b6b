"""/v1/teams: tenants."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest
from sqlalchemy import func, select

from app.caller import EVERYTHING, KEYS_WRITE, MEMORIES_READ, SERVER_ADMIN, TEAM_ADMIN, server_owner
from app.services.identity import members
from app.store import models
from tests.conftest import Server, Tenant, client, make_key


@pytest.fixture
def admin(server: Server) -> Iterator[httpx.Client]:
    """A client that administers the server."""
    with client(server, make_key(server.database, server_owner(), scopes=(SERVER_ADMIN,))) as http:
        yield http


def test_a_team_is_created_and_read(admin: httpx.Client):
    """Its slug is derived from the name."""
    made = admin.post("/v1/teams", json={"name": "Search Team", "metadata": {"cost": 1}})
    team = made.json()["team"]

    assert made.status_code == 201
    assert made.headers["Location"] == f"/v1/teams/{team['id']}"
    assert team["slug"].startswith("search-team")
    assert admin.get(f"/v1/teams/{team['id']}").json() == {"team": team}
    assert team in admin.get("/v1/teams").json()["teams"]


def test_a_taken_slug_is_a_conflict(admin: httpx.Client):
    """Also when a team is changed to it."""
    first, second = (admin.post("/v1/teams", json={"name": "x"}).json()["team"] for _ in range(2))

    assert admin.post("/v1/teams", json={"name": "y", "slug": first["slug"]}).status_code == 409
    assert admin.patch(f"/v1/teams/{second['id']}", json={"slug": first["slug"]}).status_code == 409


def test_only_one_of_two_concurrent_teams_gets_a_slug(as_team: Callable[[str], Tenant]):
    """Neither sees the other, and learns only that the slug is taken; repeating changes nothing."""
    both = as_team("a"), as_team("b")

    def take(team: Tenant) -> int:
        return team.http.patch(f"/v1/teams/{team.team_id}", json={"slug": "raced-for"}).status_code

    with ThreadPoolExecutor(2) as pool:
        at_once = list(pool.map(take, both))

    assert sorted(at_once) == [200, 409]
    assert [take(team) for team in both] == at_once


def test_a_team_sees_itself_only(team: Tenant, as_team: Callable[[str], Tenant]):
    """The list of a team key is its own team."""
    other = as_team("b")

    assert [one["id"] for one in team.http.get("/v1/teams").json()["teams"]] == [team.team_id]
    assert team.http.get(f"/v1/teams/{other.team_id}").status_code == 404


@pytest.mark.parametrize("scope", [MEMORIES_READ, KEYS_WRITE, TEAM_ADMIN, EVERYTHING])
def test_a_team_key_cannot_create_teams(server: Server, team: Tenant, scope: str):
    """Only administrators of the server can."""
    with client(server, make_key(server.database, team.caller, scopes=(scope,))) as http:
        assert http.post("/v1/teams", json={"name": "x"}).status_code == 403


def test_a_team_can_be_changed_by_itself(team: Tenant):
    """With team:admin; absent fields are kept."""
    changed = team.http.patch(f"/v1/teams/{team.team_id}", json={"name": "Renamed", "metadata": {"a": 1}}).json()[
        "team"
    ]

    assert (changed["name"], changed["metadata"]) == ("Renamed", {"a": 1})
    assert team.http.get(f"/v1/teams/{team.team_id}").json()["team"] == changed


def test_a_project_key_cannot_change_the_team(server: Server, team: Tenant):
    """The team is outside its project, whatever its scopes."""
    key = make_key(server.database, team.caller, scopes=(EVERYTHING,), project_id=team.project_id)
    with client(server, key) as http:
        assert http.patch(f"/v1/teams/{team.team_id}", json={"name": "x"}).status_code == 403
        assert http.delete(f"/v1/teams/{team.team_id}").status_code == 403
        assert http.get(f"/v1/teams/{team.team_id}/members").status_code == 403


@pytest.mark.parametrize("role", ["admin", "member", "viewer"])
def test_only_an_owner_deletes_a_team(server: Server, team: Tenant, role: str):
    """An admin cannot."""
    with server.database.write() as connection:
        members.add(connection, team.caller, user_id="ann", role=role)  # type: ignore[arg-type]
    with client(server, make_key(server.database, team.caller, scopes=(EVERYTHING,), user_id="ann")) as http:
        assert http.delete(f"/v1/teams/{team.team_id}").status_code == 403


def test_a_deleted_team_leaves_only_its_audit_log(
    server: Server, as_team: Callable[[str], Tenant], admin: httpx.Client
):
    """All its rows are deleted; the audit log outlives what it describes."""
    gone, stays = as_team("gone"), as_team("stays")
    for tenant in (gone, stays):
        tenant.post_memory(content="a memory")
        tenant.http.post("/v1/sessions/start", json={"projectId": tenant.project_id, "contentSessionId": "s"})
        event = {"sourceType": "hook", "eventType": "x", "occurredAtEpoch": 1}
        tenant.http.post("/v1/events", json={"projectId": tenant.project_id, **event})
        tenant.http.post(f"/v1/teams/{tenant.team_id}/members", json={"userId": "ann", "role": "member"})

    assert admin.delete(f"/v1/teams/{gone.team_id}").json() == {"deleted": True, "id": gone.team_id}

    assert admin.get(f"/v1/teams/{gone.team_id}").status_code == 404
    assert rows(server, gone.team_id) == {"audit_log"}
    assert {"memory_items", "projects", "team_members", "server_sessions", "agent_events"} <= rows(
        server, stays.team_id
    )


def rows(server: Server, team_id: str) -> set[str]:
    """Return the tables that hold rows of a team, except the outbox, which tells the vector index of deletions."""
    tables = [
        table for table in models.metadata.sorted_tables if "team_id" in table.c and table.name != "vector_outbox"
    ]
    with server.database.read() as connection:
        counts = {
            table.name: connection.scalar(select(func.count()).where(table.c.team_id == team_id)) for table in tables
        }
    return {name for name, count in counts.items() if count}


def test_a_server_administrator_cannot_read_memories(admin: httpx.Client, team: Tenant):
    """It sees teams and state, and no memory."""
    refused = [
        admin.get("/v1/memories"),
        admin.get("/v1/projects"),
        admin.post("/v1/search", json={"projectId": team.project_id, "query": "x"}),
        admin.get("/v1/audit"),
        admin.get("/v1/keys"),
        admin.get(f"/v1/teams/{team.team_id}/members"),
    ]

    assert [one.status_code for one in refused] == [403] * 6


def test_a_server_wide_star_key_cannot_read_memories(server: Server, team: Tenant):
    """Memories are only readable from within a team."""
    team.post_memory(content="gateway")
    with client(server, make_key(server.database, server_owner(), scopes=(EVERYTHING,))) as http:
        assert http.get("/v1/memories").json()["memories"] == []
        assert http.post("/v1/search", json={"projectId": team.project_id, "query": "gateway"}).status_code == 403


def test_a_server_wide_star_key_manages_the_members_of_any_team(server: Server, team: Tenant):
    """Someone has to add the first owner of a new team."""
    with client(server, make_key(server.database, server_owner(), scopes=(EVERYTHING,))) as http:
        made = http.post(f"/v1/teams/{team.team_id}/members", json={"userId": "olga", "role": "owner"})
        assert made.status_code == 201
        assert http.get("/v1/teams/none/members").status_code == 404
