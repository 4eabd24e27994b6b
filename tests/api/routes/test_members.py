"""/v1/teams/{id}/members: roles, and who may grant them."""

from urllib.parse import quote

import httpx
import pytest

from app.caller import EVERYTHING, RANKS, TEAM_ADMIN, Role
from tests.conftest import Server, Tenant, client, make_key

ROLES: list[Role] = list(RANKS)


def path(team: Tenant, user_id: str = "") -> str:
    return f"/v1/teams/{team.team_id}/members" + (f"/{user_id}" if user_id else "")


def add(team: Tenant, user_id: str, role: str) -> httpx.Response:
    return team.http.post(path(team), json={"userId": user_id, "role": role})


def as_member(server: Server, team: Tenant, role: Role) -> httpx.Client:
    add(team, f"the-{role}", role)
    return client(server, make_key(server.database, team.caller, scopes=(EVERYTHING,), user_id=f"the-{role}"))


def test_a_member_is_added_listed_changed_and_removed(team: Tenant):
    """The whole lifecycle."""
    added = add(team, "ann@example.org", "viewer")
    changed = team.http.patch(path(team, "ann@example.org"), json={"role": "member"})

    assert (added.status_code, added.json()["member"]["role"]) == (201, "viewer")
    assert changed.json()["member"]["role"] == "member"
    assert team.http.get(path(team)).json() == {"members": [changed.json()["member"]], "nextCursor": None}
    removed = team.http.delete(path(team, "ann@example.org"))
    assert removed.json() == {"deleted": True, "userId": "ann@example.org"}
    assert team.http.get(path(team)).json()["members"] == []


def test_adding_a_member_twice_is_a_conflict(team: Tenant):
    """409, and the role is kept."""
    add(team, "ann", "viewer")

    assert add(team, "ann", "admin").status_code == 409
    assert team.http.get(path(team)).json()["members"][0]["role"] == "viewer"


@pytest.mark.parametrize("user_id", ["", " ", "a b", "a/b", "a\\b", "..", "x" * 201, "a\tb"])
def test_a_user_id_that_does_not_fit_in_a_path_is_refused(team: Tenant, user_id: str):
    """Otherwise the member could not be removed again."""
    assert add(team, user_id, "viewer").status_code == 400


@pytest.mark.parametrize("user_id", ["ann@example.org", "安娜", "a+b%20c", "a?b#c"])
def test_a_user_id_of_any_script_is_found_again(team: Tenant, user_id: str):
    """Percent-encoding is up to the client."""
    add(team, user_id, "viewer")

    assert team.http.delete(path(team, quote(user_id, safe=""))).status_code == 200


@pytest.mark.parametrize("actor", ROLES)
@pytest.mark.parametrize("role", ROLES)
def test_no_role_above_the_callers_own_can_be_granted(server: Server, team: Tenant, actor: Role, role: Role):
    """Only admins and owners may grant roles, and an admin cannot create an owner."""
    allowed = RANKS[actor] >= RANKS["admin"] and RANKS[actor] >= RANKS[role]
    with as_member(server, team, actor) as http:
        made = http.post(path(team), json={"userId": "new", "role": role})
        add(team, "existing", "viewer")
        changed = http.patch(path(team, "existing"), json={"role": role})

    assert made.status_code == (201 if allowed else 403)
    assert changed.status_code == (200 if allowed else 403)


@pytest.mark.parametrize("actor", ROLES)
@pytest.mark.parametrize("role", ROLES)
def test_no_role_above_the_callers_own_can_be_taken_away(server: Server, team: Tenant, actor: Role, role: Role):
    """Neither by demoting nor by removing."""
    allowed = RANKS[actor] >= RANKS["admin"] and RANKS[actor] >= RANKS[role]
    add(team, "one", role)
    add(team, "two", role)
    add(team, "spare", "owner")
    with as_member(server, team, actor) as http:
        changed = http.patch(path(team, "one"), json={"role": "viewer"})
        removed = http.delete(path(team, "two"))

    assert [changed.status_code, removed.status_code] == [200 if allowed else 403] * 2


def test_a_key_with_team_admin_ranks_as_admin(server: Server, team: Tenant):
    """Without a member, the scopes of a key decide its rank."""
    with client(server, make_key(server.database, team.caller, scopes=(TEAM_ADMIN,))) as http:
        statuses = [http.post(path(team), json={"userId": role, "role": role}).status_code for role in ROLES]

    assert statuses == [201, 201, 201, 403]


def test_the_last_owner_cannot_leave(team: Tenant):
    """Neither removed nor demoted; with a second owner both are possible."""
    add(team, "olga", "owner")
    assert team.http.delete(path(team, "olga")).status_code == 409
    assert team.http.patch(path(team, "olga"), json={"role": "admin"}).status_code == 409
    assert team.http.patch(path(team, "olga"), json={"role": "owner"}).status_code == 200

    add(team, "otto", "owner")

    assert team.http.delete(path(team, "olga")).status_code == 200
    assert team.http.delete(path(team, "otto")).status_code == 409


def test_an_unknown_member_is_not_found(team: Tenant):
    """Like any other unknown id."""
    assert team.http.patch(path(team, "nobody"), json={"role": "viewer"}).status_code == 404
    assert team.http.delete(path(team, "nobody")).status_code == 404


def test_an_unknown_role_is_refused(team: Tenant):
    """400 for anything but the four roles."""
    assert add(team, "ann", "root").status_code == 400
