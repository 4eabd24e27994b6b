"""The audit of what leaves no effect: refused actions, refused credentials, and reads when they are wanted."""

import re
from functools import lru_cache
from typing import Any, Final

from litestar.handlers import BaseRouteHandler
from litestar.types import Message, Scope, Send

from app.api.http.request import PARTS, Parts
from app.caller import MEMORIES_READ, Caller
from app.errors import Forbidden
from app.services.audit import entries
from app.services.audit.entries import AuditEvent
from app.services.identity.keys import StoredKey

_ID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_VERB_AND_NOUN: Final = re.compile(r"([a-z]+)([A-Za-z]*)")


def credential_refused(parts: Parts, scope: Scope, key: StoredKey | None) -> None:
    """Note a 401. Strangers are counted as one, whatever they sent."""
    refusal = AuditEvent(
        team_id=key and key.team_id,
        project_id=key and key.project_id,
        actor_id=key and key.id,
        user_id=key and key.user_id,
        action=entries.CREDENTIAL_REFUSED,
        target=("key", key and key.id),
        outcome="refused",
    )
    parts.metering.gathering.add(refusal, scope["state"]["request_id"])


async def refused(cause: Exception, scope: Scope) -> None:
    """Note a 403: a hook after each exception."""
    caller = scope.get("auth")
    if not isinstance(cause, Forbidden) or not isinstance(caller, Caller):
        return
    parts: Parts = scope["litestar_app"].state[PARTS]
    parts.metering.gathering.add(_deed(caller, scope, "refused"), scope["state"]["request_id"])


def watched(scope: Scope, send: Send, parts: Parts, caller: Caller) -> Send:
    """Return a `send` that notes a read once it was answered; others are noted by the services."""
    if scope["route_handler"].opt.get("scope") != MEMORIES_READ:
        return send

    async def noting(message: Message) -> None:
        if message["type"] == "http.response.start" and message["status"] < 400:
            parts.metering.gathering.add(_deed(caller, scope, "done"), scope["state"]["request_id"], separate=True)
        await send(message)

    return noting


def _deed(caller: Caller, scope: Scope, outcome: entries.Outcome) -> AuditEvent:
    action, noun = _named(scope["route_handler"])
    ids = [value for value in scope["path_params"].values() if isinstance(value, str) and _ID.fullmatch(value)]
    return entries.audit_event(caller, action, (noun, ids[-1] if ids else None), outcome=outcome)


@lru_cache(maxsize=512)
def _named(handler: BaseRouteHandler) -> tuple[str, str]:
    """Return action and noun of a route, in the words of the services: createKey is `key.create` of a `key`."""
    operation_id: Any = getattr(handler, "operation_id", None)
    found = _VERB_AND_NOUN.fullmatch(str(operation_id))
    if found is None or not found.group(2):
        return str(operation_id), "route"
    verb, noun = found.groups()
    noun = noun[0].lower() + noun[1:]
    return f"{noun}.{verb}", noun
