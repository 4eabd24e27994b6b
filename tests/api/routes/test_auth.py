"""Who comes in, with what, and who does not."""

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
from tests.services.identity.test_tokens import ATTACKS
from tests.stores import Stores

WHOAMI = "/v1/auth/whoami"


def get(server: Server, path: str = WHOAMI, headers: object = None) -> httpx.Response:
    return httpx.get(server.url + path, headers=headers, trust_env=False)  # type: ignore[arg-type]


def public_id(api_key: str) -> str:
    parsed = credentials.parse(api_key)
    assert parsed is not None
    return parsed.public_id


def forgery(api_key: str) -> PresentedKey:
    """Return a well-formed key with the public id of another and a wrong secret."""
    secret = "0" * 43
    return PresentedKey(public_id(api_key), secret + credentials.checksum(public_id(api_key) + secret))


def set_key(server: Server, api_key: str, **values: object) -> None:
    with server.database.write() as connection:
        connection.execute(update(api_keys).where(api_keys.c.public_id == public_id(api_key)).values(**values))


def is_refused(response: httpx.Response) -> bool:
    """Say whether a reply is the one 401 that there is."""
    return (
        response.status_code == 401
        and response.json()["error"] == "Unauthorized"
        and response.headers["WWW-Authenticate"].startswith("Bearer")
        and response.headers["Content-Type"] == "application/problem+json"
    )


def test_a_key_comes_in_as_bearer_and_as_x_api_key(server: Server, team: Tenant):
    """Both headers carry a key; the scheme's case does not matter."""
    key = team.api_key
    forms = [{"Authorization": f"Bearer {key}"}, {"authorization": f"bearer  {key}"}, {"X-Api-Key": key}]

    assert [get(server, headers=form).status_code for form in forms] == [200, 200, 200]


def test_bearer_wins_over_x_api_key(server: Server, team: Tenant):
    """With both sent, the second is not looked at."""
    wrong = credentials.text_of(credentials.mint())

    assert get(server, headers={"Authorization": f"Bearer {team.api_key}", "X-Api-Key": wrong}).status_code == 200
    assert is_refused(get(server, headers={"Authorization": f"Bearer {wrong}", "X-Api-Key": team.api_key}))


def test_two_credentials_of_one_kind_are_none(server: Server, team: Tenant):
    """Nobody guesses which one was meant."""
    for name, value in (("Authorization", f"Bearer {team.api_key}"), ("X-Api-Key", team.api_key)):
        assert is_refused(get(server, headers=[(name, value), (name, value)]))


@pytest.mark.parametrize(
    "value", ["", "Bearer", "Basic YTpi", "Bearer a, Bearer b", "Bearer a b", "Bearer \xe4", "bearer\ta"]
)
def test_an_odd_authorization_header_is_refused(server: Server, value: str):
    """Whatever its form: 401 in the standard shape."""
    assert is_refused(get(server, headers={"Authorization": value.encode("latin-1")}))


@pytest.mark.parametrize("name", [name for name in ATTACKS if name != "empty"])
def test_a_forged_token_is_refused(server: Server, name: str):
    """401 in the standard shape, never 500."""
    assert is_refused(get(server, headers={"Authorization": b"Bearer " + ATTACKS[name].encode("utf-8")}))


def test_a_token_does_not_come_in_as_x_api_key(server: Server, team: Tenant):
    """A token is a bearer token."""
    token = team.http.post("/v1/auth/token", json={}).json()["accessToken"]

    assert is_refused(get(server, headers={"X-Api-Key": token}))


def test_unknown_and_wrong_keys_are_refused_alike(server: Server, team: Tenant):
    """The body does not say whether there is such a key."""
    wrong = credentials.mint()
    forged = forgery(team.api_key)
    replies = [
        get(server, headers={"Authorization": f"Bearer {credentials.text_of(key)}", "X-Request-Id": "same"})
        for key in (wrong, forged)
    ]

    assert replies[0].json() == replies[1].json()
    assert is_refused(replies[0])


def test_whoami_tells_what_the_credential_is_at_this_moment(server: Server, team: Tenant):
    """Scopes are those that the member's role leaves."""
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


def test_a_token_may_do_what_it_was_asked_for(server: Server, team: Tenant):
    """Scopes, project and life are the token's own."""
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


def test_a_token_makes_no_tokens_and_no_keys(server: Server, team: Tenant):
    """Not even one of a `*` key."""
    token = team.http.post("/v1/auth/token", json={}).json()["accessToken"]

    with client(server, token) as http:
        assert http.post("/v1/auth/token", json={}).status_code == 403
        assert http.post("/v1/keys", json={}).status_code == 403


@pytest.mark.parametrize("body", [{"scopes": [MEMORIES_WRITE]}, {"scopes": [EVERYTHING]}, {"projectId": "none"}])
def test_a_token_that_asks_for_more_than_its_key_is_refused(server: Server, team: Tenant, body: dict[str, object]):
    """403, as for keys."""
    key = make_key(server.database, team.caller, scopes=(MEMORIES_READ,))

    with client(server, key) as http:
        assert http.post("/v1/auth/token", json=body).status_code == 403


def test_a_repeated_token_request_does_not_show_the_token_again(team: Tenant):
    """The replay tells what was made and not its secret."""
    ask = lambda: team.http.post(  # noqa: E731
        "/v1/auth/token", json={"scopes": [MEMORIES_READ]}, headers={"Idempotency-Key": "once"}
    )
    first, second = ask(), ask()

    assert second.headers["Idempotent-Replayed"] == "true"
    assert second.json() == {**first.json(), "accessToken": None, "expiresIn": pytest.approx(3600, abs=2)}


def test_a_token_dies_with_its_key(server: Server, team: Tenant):
    """Its key's row is read on every request."""
    key = make_key(server.database, team.caller, scopes=(MEMORIES_READ,))
    with client(server, key) as http:
        token = http.post("/v1/auth/token", json={}).json()["accessToken"]
    with client(server, token) as http:
        assert http.get("/v1/memories").status_code == 200
        set_key(server, key, revoked_at_epoch=now_ms())
        assert is_refused(http.get("/v1/memories"))


def test_the_previous_secret_is_accepted_and_a_foreign_one_is_not(start_server: Callable[..., Server]):
    """Rotation of the signing secret: two accepted, one signing."""
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
    """The secret that the first start made is in the data folder, for its owner alone."""
    team = make_tenant(start_server(), "a")
    token = team.http.post("/v1/auth/token", json={}).json()["accessToken"]
    team.http.close()

    assert get(start_server(), headers={"Authorization": f"Bearer {token}"}).status_code == 200
    assert (tmp_path / "jwt-secret").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("values", [{"expires_at_epoch": 1}, {"revoked_at_epoch": 1}])
def test_a_key_that_is_over_opens_nothing_from_the_next_request(
    server: Server, team: Tenant, values: dict[str, object]
):
    """Expired, revoked: the digest that stands in for the hash does not outlive the row."""
    key = make_key(server.database, team.caller)
    assert get(server, headers={"X-Api-Key": key}).status_code == 200

    set_key(server, key, **values)

    assert is_refused(get(server, headers={"X-Api-Key": key}))


def test_a_member_who_left_has_no_keys(server: Server, team: Tenant):
    """Removal holds from the next request."""
    with server.database.write() as connection:
        members.add(connection, team.caller, user_id="bob", role="member")
    key = make_key(server.database, team.caller, user_id="bob")
    assert get(server, headers={"X-Api-Key": key}).status_code == 200

    with server.database.write() as connection:
        members.remove(connection, team.caller, "bob")

    assert is_refused(get(server, headers={"X-Api-Key": key}))


def test_the_keys_of_a_deleted_team_open_nothing(server: Server, as_team: Callable[[str], Tenant]):
    """They are gone with it."""
    gone = as_team("gone")
    assert gone.http.get(WHOAMI).status_code == 200

    with server.database.write() as connection:
        teams.remove(connection, server_owner(), gone.team_id)

    assert is_refused(gone.http.get(WHOAMI))


def test_what_was_noted_in_memory_is_kept_when_the_server_stops(stores: Stores, tmp_path: Path):
    """Last use, and a hash under today's parameters in the place of an older one: written in batches, not lost."""
    with servers(stores, tmp_path) as start:
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


def test_a_flood_of_wrong_secrets_is_not_hashed_for_long(start_server: Callable[..., Server]):
    """After a few, wrong secrets of a peer are refused unchecked; keys that were proven before go on."""
    server = start_server()
    team = make_tenant(server, "a")
    assert team.http.get(WHOAMI).status_code == 200
    fresh = make_key(server.database, team.caller)
    forged = forgery(fresh)
    started = time.monotonic()
    with client(server, credentials.text_of(forged)) as http:
        replies = [http.get(WHOAMI) for _ in range(60)]

    unchecked = [reply for reply in replies if reply.status_code == 429]
    assert len(unchecked) >= 20  # 40, or less when the minute ends in between
    assert all(int(reply.headers["Retry-After"]) > 0 for reply in unchecked)
    assert {reply.status_code for reply in replies} == {401, 429}
    assert time.monotonic() - started < 10
    assert team.http.get(WHOAMI).status_code == 200
    team.http.close()


LOCAL = {"auth_mode": "local-dev", "allow_local_dev_bypass": True}


@pytest.fixture
def local(start_server: Callable[..., Server]) -> Server:
    """A server in local-dev mode with the team that the first run makes."""
    server = start_server(**LOCAL)
    with server.database.write() as connection:
        teams.create(connection, server_owner(), name="default", slug="default")
    return server


def test_local_dev_lets_this_machine_in_without_a_key(local: Server):
    """As the owner of the team `default`."""
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
def test_local_dev_lets_in_no_proxy_and_no_web_page(local: Server, headers: dict[str, str]):
    """Each sign of somebody else ends the bypass; so does a credential that is wrong."""
    assert is_refused(get(local, headers=headers))


def test_local_dev_lets_in_its_own_pages(local: Server):
    """The documentation page is served by this server."""
    own = {"Origin": local.url, "Sec-Fetch-Site": "same-origin"}

    assert get(local, headers=own).status_code == 200


@pytest.mark.parametrize(
    "settings", [{**LOCAL, "allow_local_dev_bypass": False}, {**LOCAL, "auth_mode": "api-key"}, {}]
)
def test_the_bypass_needs_both_switches(start_server: Callable[..., Server], settings: dict[str, object]):
    """One of them alone opens nothing."""
    server = start_server(**settings)
    with server.database.write() as connection:
        teams.create(connection, server_owner(), name="default", slug="default")

    assert is_refused(get(server))


def test_without_the_team_default_nobody_comes_in_without_a_key(start_server: Callable[..., Server]):
    """There is nothing to act on."""
    assert is_refused(get(start_server(**LOCAL)))


def test_keys_work_in_local_dev_mode_too(local: Server):
    """A key that is sent is the one that counts."""
    team = make_tenant(local, "a")

    assert team.http.get(WHOAMI).json()["teamId"] == team.team_id
    team.http.close()


def test_a_reader_of_keys_may_not_read_memories(server: Server, team: Tenant):
    """Scopes are separate: keys:write does not imply read."""
    with client(server, make_key(server.database, team.caller, scopes=(KEYS_WRITE,))) as http:
        assert http.get("/v1/memories").status_code == 403
