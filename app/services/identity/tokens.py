"""Access tokens: short-lived JWTs that narrow an API key and become invalid with it. Only this module uses PyJWT."""

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
"""Longer texts cannot be our tokens: they are rejected without parsing."""

LEEWAY_SECONDS: Final = 5
_REQUIRED: Final = ("exp", "iat", "sub", "iss", "aud", "jti")
_SECRET_BYTES: Final = 32
_FILE_NAME: Final = "jwt-secret"


class NoSigningSecret(AppError):
    """There is no usable secret to sign tokens with; the server does not start without one."""


class Claims(msgspec.Struct, frozen=True, kw_only=True):
    """The claims of a token. `sub` is the id of its key; times are epoch seconds."""

    sub: str
    jti: str
    exp: int
    iat: int
    team: str | None
    project: str | None
    scopes: list[str]


@dataclass(frozen=True, slots=True)
class IssuedToken:
    """A new token, as returned to its owner. `expires_at_epoch` is in ms."""

    id: str
    access_token: str
    scopes: list[str]
    project_id: str | None
    expires_at_epoch: int


@dataclass(frozen=True, slots=True)
class TokenSigner:
    """Signs with one secret and also accepts the previous one, so that secrets can be rotated without downtime."""

    secret: str
    previous_secret: str | None = None

    def sign(self, claims: Claims) -> str:
        """Return the signed token of these claims."""
        payload = {**msgspec.structs.asdict(claims), "iss": ISSUER, "aud": AUDIENCE}
        return jwt.encode(payload, self.secret, algorithm=ALGORITHM)

    def decode(self, token: str) -> Claims | None:
        """Return the claims of a token; None when it is not ours, expired or malformed in any way."""
        if len(token) > MAX_LENGTH:
            return None
        for secret in (self.secret, self.previous_secret):
            if secret is not None and (payload := _verified_payload(token, secret)) is not None:
                return _as_claims(payload)
        return None


def load_signing_secret(folder: Path) -> str:
    """Return the signing secret stored in a folder, created at the first call, once even with several processes.

    Raises NoSigningSecret when the file is corrupt.
    """
    path = folder / _FILE_NAME
    if not path.exists():
        _create(path)
    secret = path.read_text("ascii").strip()
    if len(secret) < _SECRET_BYTES:
        raise NoSigningSecret(
            f"{_FILE_NAME} in the data folder is corrupt. Delete it to generate a new one; this invalidates all tokens."
        )
    return secret


def issue(
    connection: Connection,
    caller: Caller,
    signing: TokenSigner,
    *,
    scopes: list[str] | None,
    project_id: str | None,
    ttl_seconds: int,
) -> IssuedToken:
    """Return a token with at most the caller's access; it expires no later than the caller's key.

    Raises Forbidden when it would exceed the caller's access, or when the caller itself authenticated with a token.
    """
    granted = narrow_caller(connection, caller, scopes=scopes, project_id=project_id)
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
    return IssuedToken(claims.jti, signing.sign(claims), claims.scopes, claims.project, claims.exp * 1000)


def narrow_caller(
    connection: Connection, caller: Caller, *, scopes: list[str] | None, project_id: str | None
) -> Caller:
    """Return the caller limited to these scopes and this project; Forbidden unless it authenticated with an API key.

    Raises Invalid for an unknown scope, Forbidden for a scope or project that the caller lacks.
    """
    if caller.by_token or caller.key_id is None:
        raise Forbidden("Only an API key can create tokens.")
    requested = caller.scopes if scopes is None else frozenset(scopes)
    for scope in sorted(requested):
        if scope not in ALL_SCOPES:
            raise Invalid.field("body.scopes", f"{scope!r} is not a scope")
        if not caller.may(scope):
            raise Forbidden(f"The scope {scope} exceeds the key's own scopes.")
    if project_id is not None:
        projects.require(connection, caller, project_id)
    return replace(caller, scopes=requested, project_id=project_id or caller.project_id)


def apply_claims(caller: Caller, claims: Claims) -> Caller | None:
    """Return the key's caller, narrowed to a token's claims; None when the claims no longer match the key."""
    if claims.team != caller.team_id or (caller.project_id is not None and claims.project != caller.project_id):
        return None
    return replace(
        caller,
        project_id=claims.project,
        scopes=frozenset(scope for scope in claims.scopes if caller.may(scope)),
        expires_at_epoch=min(claims.exp * 1000, caller.expires_at_epoch or claims.exp * 1000),
        by_token=True,
    )


def _verified_payload(token: str, secret: str) -> dict[str, Any] | None:
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
    except (jwt.PyJWTError, ValueError, TypeError, RecursionError):  # PyJWT does not wrap errors of malformed JSON
        return None


def _as_claims(payload: dict[str, Any]) -> Claims | None:
    try:
        claims = msgspec.convert(payload, Claims)
    except msgspec.ValidationError:
        return None
    return claims if claims.exp - claims.iat <= MAX_TTL_SECONDS else None


def _create(path: Path) -> None:
    """Write a new secret to a temporary file and hard-link it into place: fails if another process was faster."""
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "w") as file:
        file.write(secrets.token_hex(_SECRET_BYTES))
        file.flush()
        os.fsync(file.fileno())
    with contextlib.suppress(FileExistsError):
        os.link(temporary, path)
    temporary.unlink()
