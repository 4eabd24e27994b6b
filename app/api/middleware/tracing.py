"""OpenTelemetry tracing, when the extra `otel` is installed and the standard OTEL_* variables name a collector.

We create the spans ourselves, because Litestar's plugin records the whole URL, and with it the query string. Our spans
have the method, route, status and request id; never the text of a memory, a search query or a credential.
"""

import importlib.util
import threading
from typing import TYPE_CHECKING, Any, Final

import structlog
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Receive, Scope, Send

from app.api.middleware.metrics import method_of
from app.api.middleware.response_status import on_status
from app.version import NAME, VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import Span

_log = structlog.get_logger(__name__)

_EXPORTER: Final = "opentelemetry.exporter.otlp.proto.http"
_CLOSE_TIMEOUT_SECONDS: Final = 2.0
"""A collector that does not respond must not delay the shutdown of the server."""


def is_installed() -> bool:
    """Say whether the extra is installed, without importing it."""
    try:
        return importlib.util.find_spec(_EXPORTER) is not None
    except ModuleNotFoundError:
        return False


def start_tracing(spans_url: str, service_name: str) -> "Tracing | None":
    """Return the tracing that sends spans to a URL; None when the URL is empty or the extra is not installed."""
    if not spans_url:
        return None
    if not is_installed():
        _log.warning("tracing_is_off", reason="pip install cmem-server[otel]")
        return None
    return Tracing(spans_url, service_name)


class Tracing:
    """Sends one span per request, in batches, from a thread of its own. OTEL_* variables set sampling and batches."""

    def __init__(self, spans_url: str, service_name: str) -> None:
        # imported here, because a server without tracing must not spend time and memory on it
        from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter  # noqa: PLC0415
        from opentelemetry.sdk.trace import TracerProvider  # noqa: PLC0415
        from opentelemetry.sdk.trace.export import BatchSpanProcessor  # noqa: PLC0415
        from opentelemetry.trace import SpanKind  # noqa: PLC0415
        from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator  # noqa: PLC0415

        self._provider = TracerProvider(resource=_resource(service_name), shutdown_on_exit=False)
        self._provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=spans_url)))
        self._tracer = self._provider.get_tracer(NAME, VERSION)
        self._kind = SpanKind.SERVER
        self._parents = TraceContextTextMapPropagator()

    def trace_requests(self, app: ASGIApp) -> ASGIApp:
        """Return `app` with a span around each request, in the trace that the client names with `traceparent`."""

        async def trace(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != ScopeType.HTTP:
                await app(scope, receive, send)
                return
            statuses = [500]  # stays the last one when the app fails before it replies
            # exceptions are not recorded, because their messages may contain the text of a memory
            with self._tracer.start_as_current_span(
                method_of(scope),
                self._parents.extract(_headers(scope)),
                self._kind,
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    await app(scope, receive, on_status(send, statuses.append))
                finally:
                    _describe(span, scope, statuses[-1])

        return trace

    def close(self) -> None:
        """Send the pending spans, unless that takes too long."""
        closing = threading.Thread(target=self._provider.shutdown, name="tracing-close", daemon=True)
        closing.start()
        closing.join(_CLOSE_TIMEOUT_SECONDS)


def _describe(span: "Span", scope: Scope, status: int) -> None:
    from opentelemetry.trace import StatusCode  # noqa: PLC0415

    method, path = method_of(scope), str(scope.get("path_template") or "unmatched")
    span.update_name(f"{method} {path}")
    span.set_attributes(
        {
            "http.request.method": method,
            "http.route": path,
            "http.response.status_code": status,
            "cmem.request_id": scope["state"]["request_id"],
        }
    )
    if status >= 500:
        span.set_status(StatusCode.ERROR)


def _headers(scope: Scope) -> dict[str, Any]:
    names = (b"traceparent", b"tracestate")
    return {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in names}


def _resource(service_name: str) -> "Resource":
    """Return the resource of our spans: OTEL_SERVICE_NAME overrides OTEL_RESOURCE_ATTRIBUTES, and that our own name."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415

    default = Resource({"service.name": NAME, "service.version": VERSION})
    configured = Resource({"service.name": service_name} if service_name else {})
    return default.merge(OTELResourceDetector().detect()).merge(configured)
