"""Access tokens: they narrow a key, die with it, and nothing else passes for one."""

import base64
import json
import multiprocessing
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import jwt
import pytest

from app.caller import EVERYTHING, KEYS_WRITE, MEMORIES_READ, MEMORIES_WRITE, SERVER_ADMIN, Caller, server_owner
from app.clock import now_ms
from app.errors import Forbidden, Invalid
from app.services.identity import teams, tokens
from app.services.identity.tokens import Claims, NoSigningSecret, Signing
from app.services.projects import projects
from app.store.database import Database

SECRET = "0123456789abcdef" * 4
SIGNING = Signing(SECRET)
NOW = int(time.time())


def payload(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    made = {"sub": "key", "jti": "1", "exp": now + 3600, "iat": now, "team": "t", "project": None, "scopes": []}
    return {**made, "iss": tokens.ISSUER, "aud": tokens.AUDIENCE, **changes}


def signed(secret: str = SECRET, algorithm: str = "HS256", **changes: Any) -> str:
    return jwt.encode(payload(**changes), secret, algorithm=algorithm)


def unsigned(header: dict[str, Any], body: Any) -> str:
    parts = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in (header, body)]
    return ".".join([*parts, ""])


def without(name: str) -> str:
    claims = payload()
    del claims[name]
    return jwt.encode(claims, SECRET, algorithm="HS256")


ATTACKS = {
    "alg none": unsigned({"alg": "none", "typ": "JWT"}, payload()),
    "alg None": unsigned({"alg": "None", "typ": "JWT"}, payload()),
    "no algorithm": unsigned({"typ": "JWT"}, payload()),
    "other algorithm": signed(algorithm="HS512", secret=SECRET * 2),
    "same secret, other algorithm": signed(algorithm="HS384"),
    "other secret": signed(secret="f" * 64),
    "wrong audience": signed(aud="somebody-else"),
    "wrong issuer": signed(iss="somebody-else"),
    "expired": signed(exp=int(time.time()) - 60),
    "from the future": signed(iat=int(time.time()) + 36_000),
    "not yet valid": signed(nbf=int(time.time()) + 36_000),
    "truncated": signed()[:-10],
    "cut in the middle": signed()[: len(signed()) // 2],
    "ten kilobytes": signed(padding="x" * 10_000),
    "five parts": signed() + ".a.b",
    "subject is a number": signed(sub=1),
    "scopes are text": signed(scopes="*"),
    "expiry is text": signed(exp="never"),
    "lives longer than any token of ours": signed(exp=int(time.time()) + 90_000),
    "header nested deeply": base64.urlsafe_b64encode(b"[" * 3000).decode() + ".e30.x",
    "header is a list": unsigned([], payload()),  # type: ignore[arg-type]
    "not base64": "ä.ö.ü",
    "a key": "cmem_000000000000_0",
    "dots": "..",
    "empty": "",
    **{f"no {name}": without(name) for name in ("exp", "iat", "sub", "iss", "aud", "jti", "team", "scopes")},
}


def test_a_token_of_ours_is_read():
    """What was signed is what is read."""
    claims = Claims(sub="key", jti="1", exp=NOW + 3600, iat=NOW, team="t", project=None, scopes=["*"])

    assert SIGNING.claims_of(SIGNING.sign(claims)) == claims


@pytest.mark.parametrize("name", ATTACKS)
def test_what_is_no_token_of_ours_says_nothing(name: str):
    """Whatever it is, it is refused and no error."""
    assert SIGNING.claims_of(ATTACKS[name]) is None


def test_two_secrets_are_accepted_and_one_signs():
    """Secrets are changed without a gap: old tokens run out, new ones carry the new signature."""
    old, new = Signing(SECRET), Signing("f" * 32 + SECRET, previous_secret=SECRET)

    assert new.claims_of(signed()) is not None
    assert (
        old.claims_of(new.sign(Claims(sub="k", jti="1", exp=NOW + 3600, iat=NOW, team=None, project=None, scopes=[])))
        is None
    )


def test_a_secret_is_made_once_with_mode_0600(tmp_path: Path):
    """A restart signs with the same secret, and nobody else reads it."""
    secret = tokens.secret_in(tmp_path)

    assert tokens.secret_in(tmp_path) == secret
    assert len(secret) >= 32
    assert [path.name for path in tmp_path.iterdir()] == ["jwt-secret"]
    assert (tmp_path / "jwt-secret").stat().st_mode & 0o777 == 0o600


def test_processes_that_start_together_agree_on_the_secret(tmp_path: Path):
    """Whoever is second takes what the first one made."""
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        secrets = pool.map(tokens.secret_in, [tmp_path] * 16, chunksize=1)

    assert len(set(secrets)) == 1


def test_a_damaged_secret_is_never_signed_with(tmp_path: Path):
    """An empty file would be a secret that everybody knows."""
    (tmp_path / "jwt-secret").write_text("\n")

    with pytest.raises(NoSigningSecret):
        tokens.secret_in(tmp_path)


@pytest.fixture
def holder(database: Database) -> Caller:
    """Somebody with a key of a team."""
    with database.write() as connection:
        team = teams.create(connection, server_owner(), name="a")
    return Caller(team_id=team.id, key_id="key", scopes=frozenset({MEMORIES_READ, KEYS_WRITE}))


def granted(database: Database, caller: Caller, *, ttl_seconds: int = 60, **wanted: Any) -> Claims:
    with database.write() as connection:
        made = tokens.grant(
            connection, caller, SIGNING, **{"scopes": None, "project_id": None, **wanted}, ttl_seconds=ttl_seconds
        )
    claims = SIGNING.claims_of(made.access_token)
    assert claims is not None
    return claims


def test_a_token_holds_what_its_key_holds_unless_it_asks_for_less(database: Database, holder: Caller):
    """Scopes that are left out are the key's own."""
    assert granted(database, holder).scopes == [KEYS_WRITE, MEMORIES_READ]
    assert granted(database, holder, scopes=[MEMORIES_READ]).scopes == [MEMORIES_READ]


@pytest.mark.parametrize("scope", [MEMORIES_WRITE, EVERYTHING, SERVER_ADMIN])
def test_a_token_gets_no_scope_that_its_key_lacks(database: Database, holder: Caller, scope: str):
    """An attempt is refused."""
    with pytest.raises(Forbidden):
        granted(database, holder, scopes=[scope])


def test_a_token_asks_for_scopes_that_exist(database: Database, holder: Caller):
    """A misspelt scope is an error."""
    with pytest.raises(Invalid):
        granted(database, holder, scopes=["memories:reed"])


def test_a_token_reaches_no_project_that_its_key_does_not(database: Database, holder: Caller):
    """Another project than the key's own, and one that is not there, read the same."""
    with database.write() as connection:
        owner = server_owner().within(holder.team_id or "")
        own, other = (projects.create(connection, owner, name=name).id for name in ("own", "other"))
    bound = replace(holder, project_id=own)

    assert granted(database, bound).project == granted(database, bound, project_id=own).project == own
    for project_id in (other, "none"):
        with pytest.raises(Forbidden):
            granted(database, bound, project_id=project_id)


def test_a_token_makes_no_tokens(database: Database, holder: Caller):
    """Otherwise a token would live for ever."""
    with pytest.raises(Forbidden):
        granted(database, replace(holder, by_token=True))


def test_a_token_ends_with_its_key_at_the_latest(database: Database, holder: Caller):
    """Asking for longer gives what is left."""
    ends = now_ms() + 30_000

    assert granted(database, replace(holder, expires_at_epoch=ends), ttl_seconds=3600).exp == ends // 1000


CLAIMS = Claims(
    sub="key", jti="1", exp=NOW + 3600, iat=NOW, team="t", project=None, scopes=[MEMORIES_READ, MEMORIES_WRITE]
)


def test_a_token_loses_what_its_key_loses():
    """The key's row is read on every request: narrowing it narrows its tokens."""
    acting = tokens.narrow(Caller(team_id="t", scopes=frozenset({MEMORIES_READ})), CLAIMS)

    assert acting is not None
    assert acting.scopes == {MEMORIES_READ}
    assert acting.by_token


@pytest.mark.parametrize("key", [Caller(team_id="other"), Caller(team_id=None), Caller(team_id="t", project_id="p")])
def test_a_token_that_no_longer_fits_its_key_opens_nothing(key: Caller):
    """A key that was bound to a project since then has no team-wide tokens."""
    assert tokens.narrow(key, CLAIMS) is None


def test_a_token_of_a_star_key_does_not_administer_the_server():
    """A claim is never more than the key behind it."""
    acting = tokens.narrow(
        Caller(team_id="t", scopes=frozenset({EVERYTHING})),
        Claims(sub="k", jti="1", exp=NOW + 3600, iat=NOW, team="t", project=None, scopes=[SERVER_ADMIN, EVERYTHING]),
    )

    assert acting is not None
    assert not acting.may(SERVER_ADMIN)
