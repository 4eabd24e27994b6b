"""Counts requests, and measures how long they take, for /metrics."""

import time
from typing import Final

from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send
from prometheus_client import Counter, Gauge, Histogram

from app.api.middleware.response_status import on_status

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


def count_requests(app: ASGIApp) -> ASGIApp:
    """Return `app` with its requests counted, by the path of the route: ids must not become series of their own.

    Wraps Litestar from outside, because its own middleware counts what another middleware refuses as a 200.
    """

    async def count(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await app(scope, receive, send)
            return
        statuses = [500]  # stays the last one when the app fails before it replies
        started = time.perf_counter()
        with _IN_PROGRESS.track_inprogress():
            try:
                await app(scope, receive, on_status(send, statuses.append))
            finally:
                _observe(scope, statuses[-1], time.perf_counter() - started)

    return count


def method_of(scope: Scope) -> str:
    """Return the method of a request; `other` for a made-up one."""
    method = str(scope.get("method"))
    return method if method in _METHODS else "other"


def _observe(scope: Scope, status: int, seconds: float) -> None:
    method = method_of(scope)
    path = scope.get("path_template") or "unmatched"
    _REQUESTS.labels(method, path, str(status)).inc()
    _DURATIONS.labels(method, path).observe(seconds)
