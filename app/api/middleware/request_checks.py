"""The checks before the body is read: 401, 429, 403 for the scope, 415 for the media type, 400 for the query.

Only a route that says so itself (`public=True`) is public; the text of the path never decides.
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
from app.api.http.authentication import CredentialRejected
from app.api.http.request import APP_STATE, AppState
from app.api.middleware import audit
from app.caller import Caller
from app.clock import now_ms
from app.errors import NotFound, Unauthenticated
from app.store.engines import rls_context

_JSON: Final = re.compile(r"^application/json\s*(;\s*charset=\"?utf-8\"?\s*)?$", re.IGNORECASE)


class UnsupportedMediaType(HTTPException):
    """The body has another media type than the route accepts, or is compressed."""

    status_code = 415


def check_requests(app: ASGIApp) -> ASGIApp:
    """Return the middleware that passes on a request, or raises the error of the first check that fails."""

    async def check(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == ScopeType.HTTP:
            rls_context.act_for_nobody()
            opt = scope["route_handler"].opt
            if not opt.get("public"):
                app_state: AppState = scope["litestar_app"].state[APP_STATE]
                caller = scope["auth"] = await _authenticate(scope, app_state)
                rls_context.act_for(caller.team_id)
                await _require_limits(scope, app_state, caller)
                if (required_scope := opt.get("scope")) is not None and not _may_as_server(caller, opt):
                    caller.require(required_scope)
                if app_state.audit_reads:
                    send = audit.record_read(scope, send, app_state, caller)
            _require_media_type(scope)
            strict_query.validate(scope)
            _require_text_path(scope)
        await app(scope, receive, send)

    return check


def _may_as_server(caller: Caller, opt: Mapping[str, Any]) -> bool:
    """Say whether a route also accepts a server administrator, who has no scope within any team."""
    return (or_scope := opt.get("or_scope")) is not None and caller.team_id is None and caller.may(or_scope)


async def _authenticate(scope: Scope, app_state: AppState) -> Caller:
    try:
        caller = await app_state.authenticator.authenticate(scope)
    except CredentialRejected as rejected:
        audit.record_rejected_credential(app_state, scope, rejected.key)
        delay_seconds = app_state.authenticator.rejection_delay.delay_seconds(authentication.peer_of(scope))
        if delay_seconds > 0:
            await asyncio.sleep(delay_seconds)
        raise Unauthenticated from None
    if caller.key_id is not None:
        app_state.last_used[caller.key_id] = now_ms()
    structlog.contextvars.bind_contextvars(key_id=caller.key_id, project_id=caller.project_id)
    return caller


async def _require_limits(scope: Scope, app_state: AppState, caller: Caller) -> None:
    """Count the request of a key. Raises RateLimited; a used-up monthly quota is only noted here: 402 comes last."""
    if (key_id := caller.key_id) is None:
        return
    await app_state.recorder.sync_counts(key_id)
    if app_state.rate_limiter is not None:
        app_state.rate_limiter.admit(key_id, scope)
    if app_state.monthly_quota is None or app_state.monthly_quota.admit(key_id, scope):
        app_state.recorder.count_usage(key_id, caller.team_id, scope["route_handler"])


def _require_text_path(scope: Scope) -> None:
    """Raise NotFound for a NUL in the path: no id contains one, and PostgreSQL cannot even be queried with it."""
    if "\0" in scope["path"]:
        raise NotFound("path")


def _require_media_type(scope: Scope) -> None:
    headers = dict(scope["headers"])
    has_body = headers.get(b"content-length", b"0") != b"0" or b"transfer-encoding" in headers
    if not has_body:
        return
    if b"content-encoding" in headers:
        raise UnsupportedMediaType("The body must not be compressed or otherwise encoded (Content-Encoding).")
    opt = scope["route_handler"].opt
    if not opt.get("media", _JSON).match(headers.get(b"content-type", b"").decode("latin-1").strip()):
        raise UnsupportedMediaType(f"The Content-Type of the body must be {opt.get('consumes', 'application/json')}.")
