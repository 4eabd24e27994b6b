"""/metrics: what a server counts and how it stands, for Prometheus."""

import time
from collections.abc import Iterable
from typing import Final

from litestar import Response, Router, get
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from prometheus_client import CONTENT_TYPE_LATEST, REGISTRY, Counter, Gauge, Histogram, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from app.api.request import ApiRequest
from app.api.threads import reading
from app.caller import SERVER_ADMIN
from app.services import gauges
from app.store.database import Database

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_REQUESTS: Final = Counter("cmem_requests", "Requests by route and status.", ("method", "path", "status"))
_DURATIONS: Final = Histogram(
    "cmem_request_duration_seconds",
    "Time until the end of the reply.",
    ("method", "path"),
    buckets=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0),
)
_IN_PROGRESS: Final = Gauge("cmem_requests_in_progress", "Requests that are being answered.")


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


def _note(scope: Scope, status: int, seconds: float) -> None:
    asked = str(scope.get("method"))
    method = asked if asked in _METHODS else "other"
    path = scope.get("path_template") or "unmatched"
    _REQUESTS.labels(method, path, str(status)).inc()
    _DURATIONS.labels(method, path).observe(seconds)


class _Standing(Collector):
    """How a database stands at the moment of the scrape."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def collect(self) -> Iterable[Metric]:
        """Return a gauge for each number."""
        for name, description, value in gauges.read(self._database):
            yield GaugeMetricFamily(f"cmem_{name}", description, value)


@get("/metrics", operation_id="getMetrics", scope=SERVER_ADMIN, produces="text/plain")
@reading
def get_metrics(request: ApiRequest) -> Response[bytes]:
    """Return counters and gauges in the text format of Prometheus."""
    standing = CollectorRegistry(auto_describe=False)
    standing.register(_Standing(request.database))
    return Response(generate_latest(REGISTRY) + generate_latest(standing), media_type=CONTENT_TYPE_LATEST)


router = Router("/", route_handlers=[get_metrics], tags=["health"])
