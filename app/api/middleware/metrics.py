"""Counts requests, and measures how long they take, for /metrics."""

import time
from typing import Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from prometheus_client import Counter, Gauge, Histogram

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REQUESTS: Final = Counter("cmem_requests", "Requests by route and status.", ("method", "path", "status"))
_DURATIONS: Final = Histogram(
    "cmem_request_duration_seconds",
    "Time until the end of the reply.",
    ("method", "path"),
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
_IN_PROGRESS: Final = Gauge(
    "cmem_requests_in_progress", "Requests that are being answered.", multiprocess_mode="livesum"
)


def counted(app: ASGIApp) -> ASGIApp:
    """Return `app` with its requests counted.

    Outside of Litestar, whose own middleware for this takes what another middleware refuses for a 200. Paths are those
    of the routes: an id in a path must not become a series of its own.
    """

    async def count(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        status = 500

        async def noting(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        started = time.perf_counter()
        with _IN_PROGRESS.track_inprogress():
            try:
                await app(scope, receive, noting)
            finally:
                _note(scope, status, time.perf_counter() - started)

    return count


def method_of(scope: Scope) -> str:
    """Return a request's method; what somebody made up is `other`."""
    asked = str(scope.get("method"))
    return asked if asked in _METHODS else "other"


def _note(scope: Scope, status: int, seconds: float) -> None:
    method = method_of(scope)
    path = scope.get("path_template") or "unmatched"
    _REQUESTS.labels(method, path, str(status)).inc()
    _DURATIONS.labels(method, path).observe(seconds)
