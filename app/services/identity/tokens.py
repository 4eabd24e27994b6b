"""Access tokens: short-lived JWTs that narrow an API key and die with it. PyJWT and the signing secret stay in here."""

import contextlib
import os
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import jwt
import msgspec
from sqlalchemy import Connection

from app.caller import ALL_SCOPES, Caller
from app.clock import new_id, now_ms
from app.errors import AppError, Forbidden, Invalid
from app.services.audit import entries
from app.services.projects import projects

ALGORITHM: Final = "HS256"
ISSUER: Final = "cmem-server"
AUDIENCE: Final = "cmem-server/v1"
MAX_TTL_SECONDS: Final = 86_400
MAX_LENGTH: Final = 4_096
"""Longer texts are no tokens of ours: they are refused before anything of them is parsed."""

LEEWAY_SECONDS: Final = 5
_REQUIRED: Final = ("exp", "iat", "sub", "iss", "aud", "jti")
_SECRET_BYTES: Final = 32
_FILE_NAME: Final = "jwt-secret"


class NoSigningSecret(AppError):
    """There is no secret that tokens could be signed with; the server does not start without one."""


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """What a token says. `sub` is the id of its key; times are epoch seconds."""

    sub: str
    jti: str
    exp: int
    iat: int
    team: str | None
    project: str | None
    scopes: list[str]


@dataclass(frozen=True, slots=True)
class Grant:
    """A token that was made, as its owner gets it. `expires_at_epoch` is in ms."""

    id: str
    access_token: str
    scopes: list[str]
    project_id: str | None
    expires_at_epoch: int


@dataclass(frozen=True, slots=True)
class Signing:
    """Signs with one secret and accepts the previous one too, so that secrets can be changed without a gap."""

    secret: str
    previous_secret: str | None = None

    def sign(self, claims: Claims) -> str:
        """Return the token of some claims."""
        payload = {**msgspec.structs.asdict(claims), "iss": ISSUER, "aud": AUDIENCE}
        return jwt.encode(payload, self.secret, algorithm=ALGORITHM)

    def claims_of(self, token: str) -> Claims | None:
        """Return what a token says when it is ours and in its time; None otherwise, whatever it is."""
        if len(token) > MAX_LENGTH:
            return None
        for secret in (self.secret, self.previous_secret):
            if secret is not None and (payload := _decoded(token, secret)) is not None:
                return _as_claims(payload)
        return None


def secret_in(folder: Path) -> str:
    """Return the signing secret kept in a folder, made at the first call, once even with several processes."""
    path = folder / _FILE_NAME
    if not path.exists():
        _make(path)
    secret = path.read_text("ascii").strip()
    if len(secret) < _SECRET_BYTES:
        raise NoSigningSecret(f"{_FILE_NAME} in the data folder is damaged: delete it, and every token ends.")
    return secret


def grant(
    connection: Connection,
    caller: Caller,
    signing: Signing,
    *,
    scopes: list[str] | None,
    project_id: str | None,
    ttl_seconds: int,
) -> Grant:
    """Return a token that may do what the caller may, or less; its life ends with the key's at the latest.

    Raises Forbidden for anything wider than the caller, and when the caller comes with a token himself.
    """
    granted = narrowed(connection, caller, scopes=scopes, project_id=project_id)
    now = now_ms()
    expires = min(now + ttl_seconds * 1000, caller.expires_at_epoch or now + MAX_TTL_SECONDS * 1000)
    claims = Claims(
        sub=caller.key_id or "",
        jti=new_id(),
        exp=expires // 1000,
        iat=now // 1000,
        team=caller.team_id,
        project=granted.project_id,
        scopes=sorted(granted.scopes),
    )
    entries.record(connection, caller, "token.create", target=("token", claims.jti), project_id=claims.project)
    return Grant(claims.jti, signing.sign(claims), claims.scopes, claims.project, claims.exp * 1000)


def narrowed(connection: Connection, caller: Caller, *, scopes: list[str] | None, project_id: str | None) -> Caller:
    """Return the caller that a token would make; Forbidden when that is wider, or when no key stands behind it."""
    if caller.by_token or caller.key_id is None:
        raise Forbidden("Only an API key makes tokens.")
    wanted = caller.scopes if scopes is None else frozenset(scopes)
    for scope in sorted(wanted):
        if scope not in ALL_SCOPES:
            raise Invalid.field("body.scopes", f"{scope!r} is not a scope")
        if not caller.may(scope):
            raise Forbidden(f"The scope {scope} is wider than the key's own.")
    if project_id is not None:
        projects.require(connection, caller, project_id)
    return replace(caller, scopes=wanted, project_id=project_id or caller.project_id)


def narrow(caller: Caller, claims: Claims) -> Caller | None:
    """Return who acts with a token of this key now; None when the token and its key no longer fit together."""
    if claims.team != caller.team_id or (caller.project_id is not None and claims.project != caller.project_id):
        return None
    return replace(
        caller,
        project_id=claims.project,
        scopes=frozenset(scope for scope in claims.scopes if caller.may(scope)),
        expires_at_epoch=min(claims.exp * 1000, caller.expires_at_epoch or claims.exp * 1000),
        by_token=True,
    )


def _decoded(token: str, secret: str) -> dict[str, Any] | None:
    try:
        return jwt.decode(
            token,
            secret,
            algorithms=[ALGORITHM],
            audience=AUDIENCE,
            issuer=ISSUER,
            leeway=LEEWAY_SECONDS,
            options={"require": list(_REQUIRED)},
        )
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):  # the library lets oddly formed JSON through
        return None


def _as_claims(payload: dict[str, Any]) -> Claims | None:
    try:
        claims = msgspec.convert(payload, Claims)
    except msgspec.ValidationError:
        return None
    return claims if claims.exp - claims.iat <= MAX_TTL_SECONDS else None


def _make(path: Path) -> None:
    """Write a new secret beside its place and link it there: whoever is second finds the place taken."""
    path.parent.mkdir(parents=True, exist_ok=True)
    draft = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(_SECRET_BYTES))
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileExistsError):
        os.link(draft, path)
    draft.unlink()
