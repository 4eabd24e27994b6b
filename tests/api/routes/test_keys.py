"""/v1/keys: the lifecycle of a key over HTTP."""

import pytest

from app.caller import EVERYTHING, KEYS_WRITE, MEMORIES_READ, MEMORIES_WRITE, server_owner
from app.clock import now_ms
from app.services.identity.keys import DAY_MS
from tests.conftest import Server, Tenant, client, make_key

SHOWN = {"id", "apiKey", "prefix", "scopes", "projectId", "expiresAtEpoch", "mcpUrl", "connectCommand"}


def status(server: Server, api_key: str) -> int:
    with client(server, api_key) as http:
        return http.get("/v1/auth/whoami").status_code


def test_a_new_key_is_shown_once_and_works(server: Server, team: Tenant):
    """The reply holds the only copy of the secret."""
    made = team.http.post("/v1/keys", json={"name": "ci", "projectId": team.project_id, "expiresInDays": 2})
    key = made.json()

    assert made.status_code == 201
    assert made.headers["Location"] == f"/v1/keys/{key['id']}"
    assert key.keys() == SHOWN
    assert (key["scopes"], key["projectId"], key["mcpUrl"]) == ([MEMORIES_READ], team.project_id, None)
    assert key["expiresAtEpoch"] == pytest.approx(now_ms() + 2 * DAY_MS, abs=60_000)
    assert key["apiKey"].startswith(key["prefix"] + "_")
    assert status(server, key["apiKey"]) == 200


def test_no_other_reply_holds_a_secret(team: Tenant):
    """Lists and single reads show the prefix."""
    made = team.http.post("/v1/keys", json={"name": "ci"}).json()
    secret = made["apiKey"].removeprefix(made["prefix"])
    one, many = team.http.get(f"/v1/keys/{made['id']}"), team.http.get("/v1/keys")

    assert one.json()["key"]["prefix"] == made["prefix"]
    assert one.json()["key"] in many.json()["keys"]
    assert secret not in one.text + many.text
    assert "hash" not in one.text + many.text


def test_a_repeated_creation_makes_no_second_key_and_shows_no_secret_again(team: Tenant):
    """The record of an Idempotency-Key holds ids only."""
    send = lambda: team.http.post("/v1/keys", json={"name": "ci"}, headers={"Idempotency-Key": "once"})  # noqa: E731
    first, second = send(), send()

    assert second.json() == {**first.json(), "apiKey": None}
    assert (second.status_code, second.headers["Idempotent-Replayed"]) == (201, "true")
    assert [key["id"] for key in team.http.get("/v1/keys").json()["keys"]].count(first.json()["id"]) == 1


def test_rotation_replaces_a_key(server: Server, team: Tenant):
    """Both keys work during an overlap; without one the old key ends at once."""
    first = team.http.post("/v1/keys", json={}).json()
    second = team.http.post(f"/v1/keys/{first['id']}/rotate", json={"overlapSeconds": 60}).json()
    assert [status(server, one["apiKey"]) for one in (first, second)] == [200, 200]

    third = team.http.post(f"/v1/keys/{second['id']}/rotate").json()

    assert [status(server, one["apiKey"]) for one in (second, third)] == [401, 200]
    assert team.http.post(f"/v1/keys/{second['id']}/rotate", json={}).status_code == 409


def test_a_revoked_key_stays_in_the_list(server: Server, team: Tenant):
    """It can still be seen when it was revoked."""
    made = team.http.post("/v1/keys", json={}).json()

    assert team.http.delete(f"/v1/keys/{made['id']}").json() == {"deleted": True, "id": made["id"]}

    assert status(server, made["apiKey"]) == 401
    assert team.http.get(f"/v1/keys/{made['id']}").json()["key"]["revokedAtEpoch"] <= now_ms()


def test_a_restricted_key_loses_the_scope_with_the_next_request(server: Server, team: Tenant):
    """Restrictions take effect immediately."""
    made = team.http.post("/v1/keys", json={"scopes": [MEMORIES_READ, MEMORIES_WRITE]}).json()
    body = {"projectId": team.project_id, "content": "x"}
    with client(server, made["apiKey"]) as http:
        assert http.post("/v1/memories", json=body).status_code == 201
        changed = team.http.patch(f"/v1/keys/{made['id']}", json={"scopes": [MEMORIES_READ], "name": "reader"}).json()
        assert http.post("/v1/memories", json=body).status_code == 403

    assert (changed["key"]["scopes"], changed["key"]["name"]) == ([MEMORIES_READ], "reader")


def test_null_clears_a_name_and_absence_keeps_it(team: Tenant):
    """As in every PATCH."""
    made = team.http.post("/v1/keys", json={"name": "ci", "label": "x"}).json()

    changed = team.http.patch(f"/v1/keys/{made['id']}", json={"name": None}).json()["key"]

    assert (changed["name"], changed["label"]) == (None, "x")


@pytest.mark.parametrize(
    "body",
    [
        {"scopes": []},
        {"scopes": ["memories:reed"]},
        {"expiresInDays": 0},
        {"expiresInDays": 366},
        {"expiresInDays": "1"},
        {"teamId": "x"},
        {"name": ""},
    ],
)
def test_a_malformed_body_creates_no_key(team: Tenant, body: dict[str, object]):
    """400, and nothing is created."""
    before = len(team.http.get("/v1/keys").json()["keys"])

    assert team.http.post("/v1/keys", json=body).status_code == 400
    assert len(team.http.get("/v1/keys").json()["keys"]) == before


@pytest.mark.parametrize("overlap", [-1, 604_801])
def test_the_overlap_is_limited(team: Tenant, overlap: int):
    """A week at most."""
    made = team.http.post("/v1/keys", json={}).json()

    assert team.http.post(f"/v1/keys/{made['id']}/rotate", json={"overlapSeconds": overlap}).status_code == 400


def test_a_list_of_keys_is_paged(team: Tenant):
    """Newest first, without gaps or duplicates."""
    made = [team.http.post("/v1/keys", json={}).json()["id"] for _ in range(4)]
    seen, cursor = [], None
    while True:
        page = team.http.get("/v1/keys", params={"limit": 2, **({"cursor": cursor} if cursor else {})}).json()
        seen += [key["id"] for key in page["keys"]]
        if (cursor := page["nextCursor"]) is None:
            break

    assert seen[:4] == made[::-1]
    assert len(seen) == len(set(seen)) == 5


def test_a_key_cannot_exceed_its_creator(server: Server, team: Tenant):
    """The rules of the service apply over HTTP too."""
    with client(server, make_key(server.database, team.caller, scopes=(KEYS_WRITE, MEMORIES_READ))) as http:
        owners = team.http.get("/v1/auth/whoami").json()["keyId"]
        replies = [
            http.post("/v1/keys", json={"scopes": [EVERYTHING]}),
            http.post(f"/v1/keys/{owners}/rotate", json={}),
            http.patch(f"/v1/keys/{owners}", json={"name": "x"}),
            http.delete(f"/v1/keys/{owners}"),
        ]

    assert [reply.json()["error"] for reply in replies] == ["Forbidden"] * 4
    assert team.http.get("/v1/auth/whoami").status_code == 200


def test_a_role_change_applies_to_the_keys_of_the_member(server: Server, team: Tenant):
    """A demotion takes effect with the next request, and so does a promotion."""
    member = f"/v1/teams/{team.team_id}/members"
    team.http.post(member, json={"userId": "ann", "role": "admin"})
    made = team.http.post("/v1/keys", json={"scopes": [EVERYTHING], "userId": "ann"}).json()
    with client(server, made["apiKey"]) as http:
        seen = [http.get("/v1/keys").status_code]
        for role in ("viewer", "admin"):
            team.http.patch(f"{member}/ann", json={"role": role})
            seen.append(http.get("/v1/keys").status_code)

    assert seen == [200, 403, 200]


def test_a_server_wide_key_lists_only_server_wide_keys(server: Server, team: Tenant):
    """A key without a team sees only keys without a team."""
    of_team = team.http.post("/v1/keys", json={}).json()["id"]
    with client(server, make_key(server.database, server_owner(), scopes=(EVERYTHING,))) as http:
        own = http.get("/v1/auth/whoami").json()["keyId"]
        listed = {key["id"] for key in http.get("/v1/keys", params={"limit": 200}).json()["keys"]}

    assert own in listed
    assert of_team not in listed
