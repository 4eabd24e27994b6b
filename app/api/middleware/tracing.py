"""OpenTelemetry, for whoever has installed the extra `otel` and says by its usual variables where spans go.

A span of our own and not Litestar's plugin: that one puts the whole address into the span, and with it what somebody
asked for. A span says method, route, status and request id; never a text, a question or a credential.
"""

import importlib.util
import threading
from typing import TYPE_CHECKING, Any, Final

import structlog
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from app.api.middleware.metrics import method_of
from app.version import NAME, VERSION

if TYPE_CHECKING:
    from opentelemetry.sdk.resources import Resource
    from opentelemetry.trace import Span

_log = structlog.get_logger(__name__)

_EXPORTER: Final = "opentelemetry.exporter.otlp.proto.http"
_CLOSING_SECONDS: Final = 2.0
"""A collector that does not answer must not keep a server from ending in time."""


def is_installed() -> bool:
    """Say whether the extra is there, without loading it."""
    try:
        return importlib.util.find_spec(_EXPORTER) is not None
    except ModuleNotFoundError:
        return False


def begin(spans_url: str, service_name: str) -> "Tracing | None":
    """Return what sends spans to an address; None when there is no address, or nothing that could send."""
    if not spans_url:
        return None
    if not is_installed():
        _log.warning("tracing_is_off", reason="pip install cmem-server[otel]")
        return None
    return Tracing(spans_url, service_name)


class Tracing:
    """Sends one span a request, in batches, from a thread of its own. Sampling and batches follow OTEL_* as usual."""

    def __init__(self, spans_url: str, service_name: str) -> None:
        # In here: a server without spans must not spend time and memory on what makes them.
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

    def traced(self, app: ASGIApp) -> ASGIApp:
        """Return `app` with a span around each request, in the trace that the client names with `traceparent`."""

        async def trace(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != ScopeType.HTTP:
                await app(scope, receive, send)
                return
            status = 500

            async def noting(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            # What an exception says may be somebody's text: it is not recorded.
            with self._tracer.start_as_current_span(
                method_of(scope),
                self._parents.extract(_headers(scope)),
                self._kind,
                record_exception=False,
                set_status_on_exception=False,
            ) as span:
                try:
                    await app(scope, receive, noting)
                finally:
                    _describe(span, scope, status)

        return trace

    def close(self) -> None:
        """Send what waits, if that is done in time."""
        closing = threading.Thread(target=self._provider.shutdown, name="tracing-close", daemon=True)
        closing.start()
        closing.join(_CLOSING_SECONDS)


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
    """Return who we are: OTEL_SERVICE_NAME before what OTEL_RESOURCE_ATTRIBUTES says, before our own name."""
    from opentelemetry.sdk.resources import OTELResourceDetector, Resource  # noqa: PLC0415

    ours = Resource({"service.name": NAME, "service.version": VERSION})
    named = Resource({"service.name": service_name} if service_name else {})
    return ours.merge(OTELResourceDetector().detect()).merge(named)
