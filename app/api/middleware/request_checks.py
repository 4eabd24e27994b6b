"""Who may come in, decided before the body is read: 401, 429, 403 for the scope, 415 and 400 for media and query.

A route is public when it says so itself (`public=True`); the text of the path never decides.
"""

import asyncio
import re
from collections.abc import Mapping
from typing import Any, Final

import structlog
from litestar.enums import ScopeType
from litestar.exceptions import HTTPException
from litestar.types import ASGIApp, Receive, Scope, Send

from app.api.http import authentication, strict_query
from app.api.http.authentication import Refused
from app.api.http.request import PARTS, Parts
from app.api.middleware import audit
from app.caller import Caller
from app.clock import now_ms
from app.errors import NotFound, Unauthenticated
from app.store.engines import rls_context

_JSON: Final = re.compile(r"^application/json\s*(;\s*charset=\"?utf-8\"?\s*)?$", re.IGNORECASE)


class UnsupportedMediaType(HTTPException):
    """The body is not JSON, or is encoded."""

    status_code = 415


def admission(app: ASGIApp) -> ASGIApp:
    """Return the middleware that admits a request, or raises what keeps it out."""

    async def admit(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP:
            rls_context.act_for_nobody()
            opt = scope["route_handler"].opt
            if not opt.get("public"):
                parts: Parts = scope["litestar_app"].state[PARTS]
                caller = scope["auth"] = await _authenticated(scope, parts)
                rls_context.act_for(caller.team_id)
                await parts.metering.admit(parts.workers, caller, scope)
                if (wanted := opt.get("scope")) is not None and not _may_as_server(caller, opt):
                    caller.require(wanted)
                if parts.audit_reads:
                    send = audit.watched(scope, send, parts, caller)
            _require_json(scope)
            strict_query.require(scope)
            _require_text(scope)
        await app(scope, receive, send)

    return admit


def _may_as_server(caller: Caller, opt: Mapping[str, Any]) -> bool:
    """Say whether a route lets in whoever administers the server, who has no scope within any team."""
    return (instead := opt.get("or_scope")) is not None and caller.team_id is None and caller.may(instead)


async def _authenticated(scope: Scope, parts: Parts) -> Caller:
    try:
        caller = await parts.authentication.caller(scope)
    except Refused as refused:
        audit.credential_refused(parts, scope, refused.key)
        if (seconds := parts.authentication.pace.delay_seconds(authentication.peer_of(scope))) > 0:
            await asyncio.sleep(seconds)
        raise Unauthenticated from None
    if caller.key_id is not None:
        parts.last_used[caller.key_id] = now_ms()
    structlog.contextvars.bind_contextvars(key_id=caller.key_id, project_id=caller.project_id)
    return caller


def _require_text(scope: Scope) -> None:
    """Refuse a NUL in the path: no id has one, and PostgreSQL cannot even be asked for it."""
    if "\0" in scope["path"]:
        raise NotFound("path")


def _require_json(scope: Scope) -> None:
    headers = dict(scope["headers"])
    has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
    if not has_body:
        return
    if b"content-encoding" in headers:
        raise UnsupportedMediaType("A body must not be encoded (Content-Encoding).")
    opt = scope["route_handler"].opt
    if not opt.get("media", _JSON).match(headers.get(b"content-type", b"").decode("latin-1").strip()):
        raise UnsupportedMediaType(f"A body must be {opt.get('consumes', 'application/json')}.")
