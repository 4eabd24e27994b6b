"""Audit events that no transaction records: rejected credentials, forbidden actions, and reads where enabled."""

import re
from functools import lru_cache
from typing import Any, Final

from litestar.handlers import BaseRouteHandler
from litestar.types import Scope, Send

from app.api.http.request import APP_STATE, AppState
from app.api.middleware.response_status import on_status
from app.caller import MEMORIES_READ, Caller
from app.errors import Forbidden
from app.services.audit import entries
from app.services.audit.entries import AuditEvent
from app.services.identity.keys import StoredKey

_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VERB_AND_NOUN: Final = re.compile(r"([a-z]+)([A-Za-z]*)")


def record_rejected_credential(app_state: AppState, scope: Scope, key: StoredKey | None) -> None:
    """Record a 401. All credentials without a known key count as one actor, whatever they contain."""
    event = AuditEvent(
        team_id=key and key.team_id,
        project_id=key and key.project_id,
        actor_id=key and key.id,
        user_id=key and key.user_id,
        action=entries.CREDENTIAL_REFUSED,
        target=("key", key and key.id),
        outcome="refused",
    )
    app_state.recorder.audit_events.add(event, scope["state"]["request_id"])


async def record_forbidden(cause: Exception, scope: Scope) -> None:
    """Record a 403: a hook that runs after each exception."""
    caller = scope.get("auth")
    if not isinstance(cause, Forbidden) or not isinstance(caller, Caller):
        return
    app_state: AppState = scope["litestar_app"].state[APP_STATE]
    app_state.recorder.audit_events.add(_event(caller, scope, "refused"), scope["state"]["request_id"])


def record_read(scope: Scope, send: Send, app_state: AppState, caller: Caller) -> Send:
    """Return a `send` that records a successful read; the services record everything else themselves."""
    if scope["route_handler"].opt.get("scope") != MEMORIES_READ:
        return send

    def record(status: int) -> None:
        if status < 400:
            event = _event(caller, scope, "done")
            app_state.recorder.audit_events.add(event, scope["state"]["request_id"], separate=True)

    return on_status(send, record)


def _event(caller: Caller, scope: Scope, outcome: entries.Outcome) -> AuditEvent:
    action, noun = _action_and_noun(scope["route_handler"])
    ids = [value for value in scope["path_params"].values() if isinstance(value, str) and _ID.fullmatch(value)]
    return entries.audit_event(caller, action, (noun, ids[-1] if ids else None), outcome=outcome)


@lru_cache(maxsize=512)
def _action_and_noun(handler: BaseRouteHandler) -> tuple[str, str]:
    """Return the action and the noun of a route, as the services name them: createKey is `key.create` of a `key`."""
    operation_id: Any = getattr(handler, "operation_id", None)
    match = _VERB_AND_NOUN.fullmatch(str(operation_id))
    if match is None or not match.group(2):
        return str(operation_id), "route"
    verb, noun = match.groups()
    noun = noun[0].lower() + noun[1:]
    return f"{noun}.{verb}", noun
