"""/v1/usage: the requests of a team's keys in a month."""

from collections.abc import Callable
from pathlib import Path

from app.caller import AUDIT_READ
from app.clock import now_ms
from app.services.quotas import rate_limit
from tests.conftest import Server, Tenant, client, make_key, make_tenant, servers
from tests.databases import Databases


def send_one_of_each_kind(tenant: Tenant) -> None:
    """Send one request of each kind."""
    tenant.post_memory(content="x")
    tenant.http.get("/v1/memories")
    tenant.http.post("/v1/search", json={"projectId": tenant.project_id, "query": "x"})
    tenant.http.get("/v1/keys")


def test_requests_are_counted_by_kind(team: Tenant):
    """The request for the usage is included, as the last."""
    send_one_of_each_kind(team)
    send_one_of_each_kind(team)

    usage = team.http.get("/v1/usage").json()

    assert usage["month"] == rate_limit.month(now_ms())
    assert usage["requests"] == {"read": 2, "search": 2, "write": 2, "admin": 3}
    assert usage["total"] == 9


def test_a_team_sees_its_own_usage_only(team: Tenant, as_team: Callable[[str], Tenant]):
    """Requests of other teams are not counted."""
    send_one_of_each_kind(as_team("b"))

    assert team.http.get("/v1/usage").json()["total"] == 1


def test_a_project_key_sees_the_usage_of_its_projects_keys(server: Server, team: Tenant):
    """Keys of the whole team are not counted."""
    send_one_of_each_kind(team)
    key = make_key(server.database, team.caller, scopes=(AUDIT_READ,), project_id=team.project_id)
    with client(server, key) as http:
        assert http.get("/v1/usage").json()["total"] == 1


def test_another_month_can_be_requested(team: Tenant):
    """A month without requests has zeros; an invalid month is a 400."""
    send_one_of_each_kind(team)

    assert team.http.get("/v1/usage", params={"month": "2001-01"}).json()["total"] == 0
    assert team.http.get("/v1/usage", params={"month": "2001-13"}).status_code == 400


def test_usage_survives_a_restart(databases: Databases, tmp_path: Path):
    """Counts are stored on shutdown, and counted once."""
    with servers(databases, tmp_path) as start:
        team = make_tenant(start(), "a")
        send_one_of_each_kind(team)
        team.http.close()

    with servers(databases, tmp_path) as start, client(start(), team.api_key) as http:
        totals = [http.get("/v1/usage").json()["total"] for _ in range(3)]

    assert totals == [5, 6, 7]
