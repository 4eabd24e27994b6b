"""The outermost layer: request ids, HEAD, security headers, one log line per request. Knows no routes."""

import re
import time
from typing import Any, Final

import structlog
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from app.clock import new_id

_log = structlog.get_logger("app.access")
_REQUEST_ID: Final = re.compile(rb"[A-Za-z0-9][A-Za-z0-9_-]{0,63}")
_KEY_OR_TOKEN: Final = re.compile(r"(cmem_|eyJ)[\w.-]+")
_SECURITY_HEADERS: Final = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cache-control", b"no-store"),
)


def add_request_context(app: ASGIApp) -> ASGIApp:
    """Return `app` with what all requests and replies of this server have in common."""

    async def with_context(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        await _Exchange(scope, send).run(app, receive)

    return with_context


class _Exchange:
    """One request and its reply."""

    def __init__(self, scope: Any, send: Send) -> None:
        self._scope = scope
        self._send = send
        self._is_head = scope["method"] == "HEAD"
        self._status = 0
        self._request_id = _request_id(scope)

    async def run(self, app: ASGIApp, receive: Receive) -> None:
        """Answer HEAD as GET without its body; write the log line once the reply has been sent."""
        scope = self._scope
        scope.setdefault("state", {})["request_id"] = self._request_id
        if self._is_head:  # a copy, because uvicorn reads the method from its own scope to omit the body
            scope = {**scope, "method": "GET"}
        structlog.contextvars.clear_contextvars()
        structlog.contextvars.bind_contextvars(request_id=self._request_id)
        started = time.perf_counter()
        try:
            await app(scope, receive, self._reply)
        finally:
            milliseconds = round((time.perf_counter() - started) * 1000, 1)
            _log.info(
                "request",
                method=self._scope["method"],
                path=_KEY_OR_TOKEN.sub(r"\1…", scope["path"]),  # a client may put its key there by mistake
                status=self._status,
                duration_ms=milliseconds,
            )

    async def _reply(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            present = {name.lower() for name, _ in message["headers"]}
            extra = [header for header in _SECURITY_HEADERS if header[0] not in present]
            headers = [*message["headers"], *extra, (b"x-request-id", self._request_id.encode())]
            message = {**message, "headers": headers}
        elif self._is_head and message["type"] == "http.response.body":
            message = {**message, "body": b""}
        await self._send(message)


def _request_id(scope: Any) -> str:
    for name, value in scope["headers"]:
        if name == b"x-request-id" and _REQUEST_ID.fullmatch(value):
            return str(value.decode())
    return new_id()
