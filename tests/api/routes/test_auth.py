"""/v1/auth: which credentials are accepted, and which are not."""

import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import jwt
import pytest
from argon2 import PasswordHasher
from sqlalchemy import select, update

from app.caller import EVERYTHING, KEYS_WRITE, MEMORIES_READ, MEMORIES_WRITE, server_owner
from app.clock import now_ms
from app.services.identity import credentials, members, teams
from app.services.identity.credentials import PresentedKey
from app.store.models import api_keys
from tests.conftest import Server, Tenant, client, make_key, make_tenant, servers
from tests.databases import Databases
from tests.services.identity.test_tokens import ATTACKS

WHOAMI = "/v1/auth/whoami"


def get(server: Server, path: str = WHOAMI, headers: object = None) -> httpx.Response:
    return httpx.get(server.url + path, headers=headers, trust_env=False)  # type: ignore[arg-type]


def public_id(api_key: str) -> str:
    parsed = credentials.parse(api_key)
    assert parsed is not None
    return parsed.public_id


def forge(api_key: str) -> PresentedKey:
    """Return a well-formed key with another key's public id and a wrong secret."""
    secret = "0" * 43
    return PresentedKey(public_id(api_key), secret + credentials.checksum(public_id(api_key) + secret))


def set_key(server: Server, api_key: str, **values: object) -> None:
    with server.database.write() as connection:
        connection.execute(update(api_keys).where(api_keys.c.public_id == public_id(api_key)).values(**values))


def is_refused(response: httpx.Response) -> bool:
    """Say whether a reply is the standard 401."""
    return (
        response.status_code == 401
        and response.json()["error"] == "Unauthorized"
        and response.headers["WWW-Authenticate"].startswith("Bearer")
        and response.headers["Content-Type"] == "application/problem+json"
    )


def test_a_key_is_accepted_as_bearer_and_as_x_api_key(server: Server, team: Tenant):
    """Both headers carry a key; the case of the scheme does not matter."""
    key = team.api_key
    forms = [{"Authorization": f"Bearer {key}"}, {"authorization": f"bearer  {key}"}, {"X-Api-Key": key}]

    assert [get(server, headers=form).status_code for form in forms] == [200, 200, 200]


def test_bearer_wins_over_x_api_key(server: Server, team: Tenant):
    """If both are sent, the second is ignored."""
    wrong = credentials.format_key(credentials.mint())

    assert get(server, headers={"Authorization": f"Bearer {team.api_key}", "X-Api-Key": wrong}).status_code == 200
    assert is_refused(get(server, headers={"Authorization": f"Bearer {wrong}", "X-Api-Key": team.api_key}))


def test_duplicate_credential_headers_are_refused(server: Server, team: Tenant):
    """The server does not guess which one was meant."""
    for name, value in (("Authorization", f"Bearer {team.api_key}"), ("X-Api-Key", team.api_key)):
        assert is_refused(get(server, headers=[(name, value), (name, value)]))


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Basic YTpi", "Bearer a, Bearer b", "Bearer a b", "Bearer \xe4", "bearer\ta"]
)
def test_a_malformed_authorization_header_is_refused(server: Server, value: str):
    """Whatever its form: 401 in the standard shape."""
    assert is_refused(get(server, headers={"Authorization": value.encode("latin-1")}))


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "empty"])
def test_a_forged_token_is_refused(server: Server, name: str):
    """401 in the standard shape, never 500."""
    assert is_refused(get(server, headers={"Authorization": b"Bearer " + ATTACKS[name].encode("utf-8")}))


def test_a_token_is_not_accepted_as_x_api_key(server: Server, team: Tenant):
    """A token is a bearer token."""
    token = team.http.post("/v1/auth/token", json={}).json()["accessToken"]

    assert is_refused(get(server, headers={"X-Api-Key": token}))


def test_unknown_and_wrong_keys_are_refused_alike(server: Server, team: Tenant):
    """The body does not reveal whether the key exists."""
    wrong = credentials.mint()
    forged = forge(team.api_key)
    replies = [
        get(server, headers={"Authorization": f"Bearer {credentials.format_key(key)}", "X-Request-Id": "same"})
        for key in (wrong, forged)
    ]

    assert replies[0].json() == replies[1].json()
    assert is_refused(replies[0])


def test_whoami_shows_the_current_permissions_of_the_credential(server: Server, team: Tenant):
    """Scopes are limited by the member's role."""
    with server.database.write() as connection:
        members.add(connection, team.caller, user_id="vic", role="viewer")
    key = make_key(server.database, team.caller, scopes=(EVERYTHING,), user_id="vic", project_id=team.project_id)

    shown = get(server, headers={"X-Api-Key": key}).json()

    assert {name: shown[name] for name in shown if name != "keyId"} == {
        "teamId": team.team_id,
        "projectId": team.project_id,
        "userId": "vic",
        "role": "viewer",
        "scopes": [MEMORIES_READ],
        "expiresAtEpoch": None,
    }


def test_a_token_has_the_requested_restrictions(server: Server, team: Tenant):
    """Scopes, project and lifetime are the token's own."""
    asked = {"scopes": [MEMORIES_READ], "projectId": team.project_id, "ttlSeconds": 60}
    made = team.http.post("/v1/auth/token", json=asked)
    token = made.json()

    assert made.status_code == 201
    assert (token["tokenType"], token["expiresIn"]) == ("Bearer", pytest.approx(60, abs=2))
    with client(server, token["accessToken"]) as http:
        shown = http.get(WHOAMI).json()
        assert (shown["scopes"], shown["projectId"]) == ([MEMORIES_READ], team.project_id)
        assert http.get("/v1/memories").status_code == 200
        assert http.post("/v1/memories", json={"projectId": team.project_id, "content": "x"}).status_code == 403


def test_a_token_carries_the_documented_claims(server: Server, team: Tenant):
    """HS256 with issuer, audience, key, team, project and scopes."""
    token = team.http.post("/v1/auth/token", json={}).json()["accessToken"]
    claims = jwt.decode(token, options={"verify_signature": False})

    assert jwt.get_unverified_header(token)["alg"] == "HS256"
    assert (claims["iss"], claims["aud"], claims["team"]) == ("cmem-server", "cmem-server/v1", team.team_id)
    assert claims["sub"] == team.http.get(WHOAMI).json()["keyId"]
    assert claims["scopes"] == [EVERYTHING]
    assert claims["project"] is None


def test_a_token_cannot_create_tokens_or_keys(server: Server, team: Tenant):
    """Not even a token of a `*` key."""
    token = team.http.post("/v1/auth/token", json={}).json()["accessToken"]

    with client(server, token) as http:
        assert http.post("/v1/auth/token", json={}).status_code == 403
        assert http.post("/v1/keys", json={}).status_code == 403


@pytest.mark.parametrize("body", [{"scopes": [MEMORIES_WRITE]}, {"scopes": [EVERYTHING]}, {"projectId": "none"}])
def test_a_token_cannot_exceed_its_key(server: Server, team: Tenant, body: dict[str, object]):
    """403, as for keys."""
    key = make_key(server.database, team.caller, scopes=(MEMORIES_READ,))

    with client(server, key) as http:
        assert http.post("/v1/auth/token", json=body).status_code == 403


def test_a_repeated_token_request_does_not_show_the_token_again(team: Tenant):
    """The replayed reply describes the token without its secret."""
    ask = lambda: team.http.post(  # noqa: E731
        "/v1/auth/token", json={"scopes": [MEMORIES_READ]}, headers={"Idempotency-Key": "once"}
    )
    first, second = ask(), ask()

    assert second.headers["Idempotent-Replayed"] == "true"
    assert second.json() == {**first.json(), "accessToken": None, "expiresIn": pytest.approx(3600, abs=2)}


def test_revoking_a_key_invalidates_its_tokens(server: Server, team: Tenant):
    """The row of the key is read on every request."""
    key = make_key(server.database, team.caller, scopes=(MEMORIES_READ,))
    with client(server, key) as http:
        token = http.post("/v1/auth/token", json={}).json()["accessToken"]
    with client(server, token) as http:
        assert http.get("/v1/memories").status_code == 200
        set_key(server, key, revoked_at_epoch=now_ms())
        assert is_refused(http.get("/v1/memories"))


def test_the_previous_secret_is_accepted_and_a_foreign_one_is_not(start_server: Callable[..., Server]):
    """Rotation of the signing secret: two are accepted, one signs."""
    old, new, foreign = ("0123456789abcdef" * 2 + mark for mark in ("old", "new", "foreign"))
    first = start_server(jwt_secret=old)
    team = make_tenant(first, "a")
    token = team.http.post("/v1/auth/token", json={}).json()["accessToken"]
    team.http.close()

    rotated = start_server(jwt_secret=new, jwt_previous_secret=old)
    over = start_server(jwt_secret=foreign)

    bearer = {"Authorization": f"Bearer {token}"}
    assert [get(one, headers=bearer).status_code for one in (first, rotated, over)] == [200, 200, 401]


def test_tokens_survive_a_restart_and_the_secret_is_private(start_server: Callable[..., Server], tmp_path: Path):
    """The secret generated at the first start is in the data folder, readable by its owner only."""
    team = make_tenant(start_server(), "a")
    token = team.http.post("/v1/auth/token", json={}).json()["accessToken"]
    team.http.close()

    assert get(start_server(), headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert (tmp_path / "jwt-secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("values", [{"expires_at_epoch": 1}, {"revoked_at_epoch": 1}])
def test_an_expired_or_revoked_key_is_refused_immediately(server: Server, team: Tenant, values: dict[str, object]):
    """The cached digest of a key does not outlive its row."""
    key = make_key(server.database, team.caller)
    assert get(server, headers={"X-Api-Key": key}).status_code == 200

    set_key(server, key, **values)

    assert is_refused(get(server, headers={"X-Api-Key": key}))


def test_the_keys_of_a_removed_member_are_refused(server: Server, team: Tenant):
    """Removal takes effect with the next request."""
    with server.database.write() as connection:
        members.add(connection, team.caller, user_id="bob", role="member")
    key = make_key(server.database, team.caller, user_id="bob")
    assert get(server, headers={"X-Api-Key": key}).status_code == 200

    with server.database.write() as connection:
        members.remove(connection, team.caller, "bob")

    assert is_refused(get(server, headers={"X-Api-Key": key}))


def test_the_keys_of_a_deleted_team_are_refused(server: Server, as_team: Callable[[str], Tenant]):
    """They were deleted with it."""
    gone = as_team("gone")
    assert gone.http.get(WHOAMI).status_code == 200

    with server.database.write() as connection:
        teams.remove(connection, server_owner(), gone.team_id)

    assert is_refused(gone.http.get(WHOAMI))


@pytest.mark.usefixtures("documented_key_hashes")
def test_pending_key_updates_are_flushed_on_shutdown(databases: Databases, tmp_path: Path):
    """Last use, and a hash upgraded to the current parameters: written in batches, not lost."""
    with servers(databases, tmp_path) as start:
        server = start()
        team = make_tenant(server, "a")
        team.http.close()
        parsed = credentials.parse(team.api_key)
        assert parsed is not None
        older = PasswordHasher(time_cost=1, memory_cost=8 * 1024, parallelism=1).hash(parsed.secret)
        set_key(server, team.api_key, secret_hash=older)
        before = now_ms()
        assert get(server, headers={"X-Api-Key": team.api_key}).status_code == 200

    with closing(server.database) as stopped, stopped.read() as connection:
        kept = select(api_keys.c.secret_hash, api_keys.c.last_used_at_epoch)
        secret_hash, used = connection.execute(kept).one()
    assert secret_hash.startswith("$argon2id$v=19$m=19456,t=2")
    assert before <= used <= now_ms()


def test_a_flood_of_wrong_secrets_is_throttled(start_server: Callable[..., Server]):
    """After a few attempts, wrong secrets of a peer are refused unchecked; keys verified before keep working."""
    server = start_server()
    team = make_tenant(server, "a")
    assert team.http.get(WHOAMI).status_code == 200
    fresh = make_key(server.database, team.caller)
    forged = forge(fresh)
    started = time.monotonic()
    with client(server, credentials.format_key(forged)) as http:
        replies = [http.get(WHOAMI) for _ in range(60)]

    unchecked = [reply for reply in replies if reply.status_code == 429]
    assert len(unchecked) >= 20  # 40, or fewer if the minute ends in between
    assert all(int(reply.headers["Retry-After"]) > 0 for reply in unchecked)
    assert {reply.status_code for reply in replies} == {401, 429}
    assert time.monotonic() - started < 10
    assert team.http.get(WHOAMI).status_code == 200
    team.http.close()


LOCAL = {"auth_mode": "local-dev", "allow_local_dev_bypass": True}


@pytest.fixture
def local(start_server: Callable[..., Server]) -> Server:
    """A server in local-dev mode with the team that the first start creates."""
    server = start_server(**LOCAL)
    with server.database.write() as connection:
        teams.create(connection, server_owner(), name="default", slug="default")
    return server


def test_local_dev_accepts_local_requests_without_a_key(local: Server):
    """They act as the owner of the team `default`."""
    shown = get(local).json()

    assert (shown["scopes"], shown["keyId"]) == ([EVERYTHING], None)
    assert get(local, "/v1/teams").json()["teams"][0]["slug"] == "default"


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "evil.example"},
        {"Host": "127.0.0.1.evil.example"},
        {"Host": "localhost@evil.example"},
        {"Forwarded": "for=127.0.0.1"},
        {"X-Forwarded-For": "127.0.0.1"},
        {"X-Forwarded-Host": "localhost"},
        {"X-Real-IP": "127.0.0.1"},
        {"Origin": "http://evil.example"},
        {"Origin": "null"},
        {"Origin": "http://localhost:1"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
        {"X-Api-Key": "wrong"},
        {"Authorization": "Bearer wrong"},
    ],
)
def test_local_dev_refuses_proxies_and_web_pages(local: Server, headers: dict[str, str]):
    """Any sign of another origin ends the bypass; so does a wrong credential."""
    assert is_refused(get(local, headers=headers))


def test_local_dev_accepts_its_own_pages(local: Server):
    """The documentation page is served by this server."""
    own = {"Origin": local.url, "Sec-Fetch-Site": "same-origin"}

    assert get(local, headers=own).status_code == 200


@pytest.mark.parametrize(
    "settings", [{**LOCAL, "allow_local_dev_bypass": False}, {**LOCAL, "auth_mode": "api-key"}, {}]
)
def test_the_local_dev_bypass_requires_both_settings(start_server: Callable[..., Server], settings: dict[str, object]):
    """Either one alone has no effect."""
    server = start_server(**settings)
    with server.database.write() as connection:
        teams.create(connection, server_owner(), name="default", slug="default")

    assert is_refused(get(server))


def test_local_dev_requires_the_default_team(start_server: Callable[..., Server]):
    """Without it there is nothing to act on."""
    assert is_refused(get(start_server(**LOCAL)))


def test_keys_work_in_local_dev_mode_too(local: Server):
    """A key that is sent takes precedence."""
    team = make_tenant(local, "a")

    assert team.http.get(WHOAMI).json()["teamId"] == team.team_id
    team.http.close()


def test_keys_write_does_not_imply_reading_memories(server: Server, team: Tenant):
    """Scopes are separate."""
    with client(server, make_key(server.database, team.caller, scopes=(KEYS_WRITE,))) as http:
        assert http.get("/v1/memories").status_code == 403
