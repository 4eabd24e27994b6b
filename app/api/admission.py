"""Who may come in, decided before the body is read: 401, 403 for the scope, 415 and 400 for media and query.

A route is public when it says so itself (`public=True`); the text of the path never decides.
"""

import re
from typing import Final

import structlog
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, Receive, Scope, Send

from app.api import strict_query
from app.api.request import PARTS, Parts
from app.caller import Caller
from app.clock import now_ms
from app.errors import Unauthenticated
from app.services import credentials, keys

_BEARER: Final = re.compile(r"^Bearer +([^\s,]+)$", re.IGNORECASE)
_JSON: Final = re.compile(r"^application/json\s*(;\s*charset=\"?utf-8\"?\s*)?$", re.IGNORECASE)


class UnsupportedMediaType(HTTPException):
    """The body is not JSON, or is encoded."""

    status_code = 415


def admission(app: ASGIApp) -> ASGIApp:
    """Return the middleware that admits a request, or raises what keeps it out."""

    async def admit(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP:
            opt = scope["route_handler"].opt
            if not opt.get("public"):
                scope["auth"] = await _authenticated(scope)
                _require_scope(scope["auth"], opt.get("scope"))
            _require_json(scope)
            strict_query.require(scope)
        await app(scope, receive, send)

    return admit


async def _authenticated(scope: Scope) -> Caller:
    parts: Parts = scope["litestar_app"].state[PARTS]
    text = _credential(scope)
    key = credentials.parse(text) if text is not None else None
    if key is None:
        raise Unauthenticated
    request_id: str = scope["state"]["request_id"]
    caller = await parts.workers.read(lambda: _behind(parts, key, request_id))
    if caller is None:
        raise Unauthenticated
    if caller.key_id is not None:
        parts.last_used[caller.key_id] = now_ms()
    structlog.contextvars.bind_contextvars(key_id=caller.key_id, project_id=caller.project_id)
    return caller


def _behind(parts: Parts, key: credentials.PresentedKey, request_id: str) -> Caller | None:
    """Return the caller behind a key: its row is read each time, its secret checked by argon2 once."""
    with parts.database.read() as connection:
        stored = keys.find(connection, key.public_id)
    if stored is None or not parts.verifier.proves(key, stored.secret_hash):
        return None
    return keys.caller_of(stored, request_id=request_id)


def _credential(scope: Scope) -> str | None:
    """Return the presented credential: Bearer wins over X-Api-Key, two of one kind are none."""
    bearers = [value for name, value in scope["headers"] if name == b"authorization"]
    if bearers:
        found = _BEARER.match(bearers[0].decode("latin-1")) if len(bearers) == 1 else None
        return found.group(1) if found else None
    given = [value for name, value in scope["headers"] if name == b"x-api-key"]
    return given[0].decode("latin-1").strip() if len(given) == 1 else None


def _require_scope(caller: Caller, wanted: str | None) -> None:
    if wanted is not None:
        caller.require(wanted)


def _require_json(scope: Scope) -> None:
    headers = dict(scope["headers"])
    has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
    if not has_body:
        return
    if b"content-encoding" in headers:
        raise UnsupportedMediaType("A body must not be encoded (Content-Encoding).")
    wanted = scope["route_handler"].opt.get("media", _JSON)
    if not wanted.match(headers.get(b"content-type", b"").decode("latin-1").strip()):
        raise UnsupportedMediaType("A body must be application/json.")
