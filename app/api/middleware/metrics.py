"""/metrics: what a server counts and how it stands, for Prometheus.

Where several processes answer, each counts into files of its own in one folder, and whichever is scraped adds them up.
The folder has to be in the environment before the first counter is made: that is how prometheus_client wants it.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from litestar import Response, Router, get
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    REGISTRY,
    Counter,
    Gauge,
    Histogram,
    generate_latest,
    multiprocess,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector, CollectorRegistry

from app.api.http.request import ApiRequest
from app.api.http.thread_pools import reading
from app.caller import SERVER_ADMIN
from app.services.operations import gauges
from app.store.database import Database

TALLIES: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable that names the folder of the files."""

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


class _Everything(Collector):
    """What the server has counted, and how its database stands at the moment of the scrape."""

    def __init__(self, database: Database, tallies: Path | None) -> None:
        self._database = database
        self._tallies = tallies

    def collect(self) -> Iterable[Metric]:
        """Return the counters, and a gauge for each number of the database."""
        yield from _whole(self._tallies).collect()
        for name, description, value in gauges.read(self._database):
            yield GaugeMetricFamily(f"cmem_{name}", description, value)


@contextmanager
def on_a_port_of_its_own(database: Database, host: str, port: int, tallies: Path | None = None) -> Iterator[None]:
    """Serve the metrics without a key on another port meanwhile; 0 is none. Raises OSError when it is taken.

    In threads of its own: a scrape neither waits for requests nor keeps one waiting.
    """
    if not port:
        yield
        return
    scraped, thread = start_http_server(port, addr=host, registry=_Everything(database, tallies))
    try:
        yield
    finally:
        scraped.shutdown()
        scraped.server_close()
        thread.join()


@get("/metrics", operation_id="getMetrics", scope=SERVER_ADMIN, produces="text/plain")
@reading
def get_metrics(request: ApiRequest) -> Response[bytes]:
    """Return counters and gauges in the text format of Prometheus."""
    everything = _Everything(request.database, request.parts.tallies)
    return Response(generate_latest(everything), media_type=CONTENT_TYPE_LATEST)


def forget_process(pid: int, tallies: Path) -> None:
    """Forget what a process had at hand when it died; what it has counted stays."""
    multiprocess.mark_process_dead(pid, str(tallies))  # type: ignore[no-untyped-call]


def _whole(tallies: Path | None) -> Collector:
    """Return the counters of the whole server: of this process, or of all that share a folder."""
    if tallies is None:
        return REGISTRY
    together = CollectorRegistry()
    multiprocess.MultiProcessCollector(together, str(tallies))  # type: ignore[no-untyped-call]
    return together


router = Router("/", route_handlers=[get_metrics], tags=["health"])
