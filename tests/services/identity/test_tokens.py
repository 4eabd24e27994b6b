"""Access tokens narrow a key and end with it; no other text is accepted as one."""

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
from app.services.identity.tokens import Claims, NoSigningSecret, TokenSigner
from app.services.projects import projects
from app.store.database import Database

SECRET = "0123456789abcdef" * 4
SIGNER = TokenSigner(SECRET)
NOW = int(time.time())


def payload(**changes: Any) -> dict[str, Any]:
    now = int(time.time())
    claims = {"sub": "key", "jti": "1", "exp": now + 3600, "iat": now, "team": "t", "project": None, "scopes": []}
    return {**claims, "iss": tokens.ISSUER, "aud": tokens.AUDIENCE, **changes}


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


def test_signed_token_can_be_decoded():
    """The claims are the same."""
    claims = Claims(sub="key", jti="1", exp=NOW + 3600, iat=NOW, team="t", project=None, scopes=["*"])

    assert SIGNER.decode(SIGNER.sign(claims)) == claims


@pytest.mark.parametrize("name", ATTACKS)
def test_foreign_or_malformed_token_decodes_to_none(name: str):
    """It does not raise, whatever it is."""
    assert SIGNER.decode(ATTACKS[name]) is None


def test_two_secrets_are_accepted_and_one_signs():
    """Secrets rotate without downtime: old tokens remain valid, new ones carry the new signature."""
    old, new = TokenSigner(SECRET), TokenSigner("f" * 32 + SECRET, previous_secret=SECRET)

    assert new.decode(signed()) is not None
    assert (
        old.decode(new.sign(Claims(sub="k", jti="1", exp=NOW + 3600, iat=NOW, team=None, project=None, scopes=[])))
        is None
    )


def test_secret_is_created_once_with_mode_0600(tmp_path: Path):
    """A restart signs with the same secret, and no other user can read it."""
    secret = tokens.load_signing_secret(tmp_path)

    assert tokens.load_signing_secret(tmp_path) == secret
    assert len(secret) >= 32
    assert [path.name for path in tmp_path.iterdir()] == ["jwt-secret"]
    assert (tmp_path / "jwt-secret").stat().st_mode & 0o777 == 0o600


def test_processes_starting_concurrently_agree_on_the_secret(tmp_path: Path):
    """All of them use the one that was created first."""
    with multiprocessing.get_context("spawn").Pool(4) as pool:
        secrets = pool.map(tokens.load_signing_secret, [tmp_path] * 16, chunksize=1)

    assert len(set(secrets)) == 1


def test_corrupt_secret_is_rejected(tmp_path: Path):
    """An empty file would be a secret that everyone can guess."""
    (tmp_path / "jwt-secret").write_text("\n")

    with pytest.raises(NoSigningSecret):
        tokens.load_signing_secret(tmp_path)


@pytest.fixture
def holder(database: Database) -> Caller:
    """The holder of a team's key."""
    with database.write() as connection:
        team = teams.create(connection, server_owner(), name="a")
    return Caller(team_id=team.id, key_id="key", scopes=frozenset({MEMORIES_READ, KEYS_WRITE}))


def issue(database: Database, caller: Caller, *, ttl_seconds: int = 60, **fields: Any) -> Claims:
    with database.write() as connection:
        token = tokens.issue(
            connection, caller, SIGNER, **{"scopes": None, "project_id": None, **fields}, ttl_seconds=ttl_seconds
        )
    claims = SIGNER.decode(token.access_token)
    assert claims is not None
    return claims


def test_token_has_the_scopes_of_its_key_unless_fewer_are_requested(database: Database, holder: Caller):
    """The default scopes are the key's own."""
    assert issue(database, holder).scopes == [KEYS_WRITE, MEMORIES_READ]
    assert issue(database, holder, scopes=[MEMORIES_READ]).scopes == [MEMORIES_READ]


@pytest.mark.parametrize("scope", [MEMORIES_WRITE, EVERYTHING, SERVER_ADMIN])
def test_token_gets_no_scope_that_its_key_lacks(database: Database, holder: Caller, scope: str):
    """An attempt is rejected."""
    with pytest.raises(Forbidden):
        issue(database, holder, scopes=[scope])


def test_unknown_scope_of_a_token_is_rejected(database: Database, holder: Caller):
    """A misspelt scope is an error."""
    with pytest.raises(Invalid):
        issue(database, holder, scopes=["memories:reed"])


def test_token_gets_no_project_outside_the_scope_of_its_key(database: Database, holder: Caller):
    """Another project than the key's own is treated like one that does not exist."""
    with database.write() as connection:
        owner = server_owner().within(holder.team_id or "")
        own, other = (projects.create(connection, owner, name=name).id for name in ("own", "other"))
    bound = replace(holder, project_id=own)

    assert issue(database, bound).project == issue(database, bound, project_id=own).project == own
    for project_id in (other, "none"):
        with pytest.raises(Forbidden):
            issue(database, bound, project_id=project_id)


def test_token_cannot_create_tokens(database: Database, holder: Caller):
    """Otherwise a token could be renewed for ever."""
    with pytest.raises(Forbidden):
        issue(database, replace(holder, by_token=True))


def test_token_expires_no_later_than_its_key(database: Database, holder: Caller):
    """A longer lifetime is cut to the key's."""
    ends = now_ms() + 30_000

    assert issue(database, replace(holder, expires_at_epoch=ends), ttl_seconds=3600).exp == ends // 1000


CLAIMS = Claims(
    sub="key", jti="1", exp=NOW + 3600, iat=NOW, team="t", project=None, scopes=[MEMORIES_READ, MEMORIES_WRITE]
)


def test_token_loses_the_scopes_that_its_key_loses():
    """The key's row is read on every request: narrowing it narrows its tokens."""
    acting = tokens.apply_claims(Caller(team_id="t", scopes=frozenset({MEMORIES_READ})), CLAIMS)

    assert acting is not None
    assert acting.scopes == {MEMORIES_READ}
    assert acting.by_token


@pytest.mark.parametrize("key", [Caller(team_id="other"), Caller(team_id=None), Caller(team_id="t", project_id="p")])
def test_token_whose_claims_no_longer_match_its_key_is_rejected(key: Caller):
    """A key that has since been bound to a project has no team-wide tokens."""
    assert tokens.apply_claims(key, CLAIMS) is None


def test_token_of_a_wildcard_key_does_not_include_server_admin():
    """A claim never grants more than the key."""
    acting = tokens.apply_claims(
        Caller(team_id="t", scopes=frozenset({EVERYTHING})),
        Claims(sub="k", jti="1", exp=NOW + 3600, iat=NOW, team="t", project=None, scopes=[SERVER_ADMIN, EVERYTHING]),
    )

    assert acting is not None
    assert not acting.may(SERVER_ADMIN)
