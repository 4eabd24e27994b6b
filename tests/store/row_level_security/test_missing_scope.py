"""If a service forgets owned(), row-level security still hides other teams' rows."""

from typing import Any

import pytest
from sqlalchemy import select

from app.store import scope
from tests.conftest import Tenant
from tests.store.row_level_security.two_teams import TwoTeamDatabase

WITH_OWNED = (
    "audit.entries",
    "projects.events",
    "transfer.exporting",
    "identity.keys",
    "memories.listing",
    "identity.members",
    "memories.memories",
    "projects.projects",
    "search.related",
    "projects.sessions",
    "identity.teams",
    "search.timeline",
    "quotas.usage",
)
WITH_PARAMETERS = ("memories.memories", "search.results", "projects.sessions", "projects.projects", "projects.events")


@pytest.fixture
def forgotten_scope(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make owned() select the rows of every team, in all services that list or read rows."""

    def select_all(table: scope.Selectable, _caller: object, *columns: Any) -> Any:
        return select(*(columns or (table,)))

    for name in WITH_OWNED:
        monkeypatch.setattr(f"app.services.{name}.owned", select_all)


def test_listings_without_owned_show_no_foreign_rows(two_teams: TwoTeamDatabase, forgotten_scope: None):
    """Every route that lists something shows only the caller's own rows."""
    a, b = two_teams.a, two_teams.b
    paths = (
        *(f"/v1/{noun}" for noun in ("memories", "projects", "sessions", "events", "keys", "teams", "audit")),
        f"/v1/projects/{a.project_id}/export",
        f"/v1/teams/{a.team_id}/members",
        f"/v1/timeline?projectId={a.project_id}&query=content",
        "/v1/usage?month=2000-01",
    )
    for path in paths:
        reply = a.http.get(path)
        assert reply.status_code == 200, reply.text
        assert foreign_in(reply.text, b) == [], path
    assert a.http.get("/v1/memories").json()["memories"][0]["teamId"] == a.team_id


def test_reads_and_changes_by_id_without_owned_find_no_foreign_rows(two_teams: TwoTeamDatabase, forgotten_scope: None):
    """By id, another team's rows do not exist."""
    a, b = two_teams.a, two_teams.b
    memory_id = b.http.get("/v1/memories").json()["memories"][0]["id"]
    session_id = b.http.get("/v1/sessions").json()["sessions"][0]["id"]
    for resource in (
        *(f"projects/{b.project_id}{what}" for what in ("", "/stats", "/export")),
        *(f"memories/{memory_id}{what}" for what in ("", "/sources")),
        f"sessions/{session_id}",
    ):
        assert a.http.get(f"/v1/{resource}").status_code == 404, resource
    assert a.http.delete(f"/v1/memories/{memory_id}").status_code == 404
    assert a.http.patch(f"/v1/memories/{memory_id}", json={"title": "mine"}).status_code == 404
    assert a.http.patch(f"/v1/projects/{b.project_id}", json={"name": "mine"}).status_code == 404
    assert b.http.get(f"/v1/memories/{memory_id}").json()["memory"]["title"] is None


def test_prepared_statement_with_another_teams_parameters_finds_nothing(
    two_teams: TwoTeamDatabase, monkeypatch: pytest.MonkeyPatch
):
    """Search and reads by id pass the other team's id while acting for the caller's own."""
    a, b = two_teams.a, two_teams.b
    memory_id = b.http.get("/v1/memories").json()["memories"][0]["id"]
    for name in WITH_PARAMETERS:
        monkeypatch.setattr(f"app.services.{name}.parameters", lambda _: scope.parameters(b.caller))
    assert a.http.get(f"/v1/memories/{memory_id}").status_code == 404
    search = a.http.post("/v1/search", json={"projectId": b.project_id, "query": "content"})
    assert (search.status_code, foreign_in(search.text, b)) == (403, [])


def foreign_in(text: str, tenant: Tenant) -> list[str]:
    """Return what a reply contains of another team."""
    return [mark for mark in (tenant.team_id, tenant.project_id, "banana") if mark in text]
