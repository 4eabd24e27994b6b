"""OpenTelemetry: spans reach an OTLP collector over HTTP, and contain no user data."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span

from app.api.middleware import tracing
from app.settings import Telemetry
from tests.serving import Started, serving

MARKER = "xylophonemarkerword"
TRACE = "0af7651916cd43dd8448eb211c80319c"
GRACE_SECONDS = 10


@dataclass
class Collector:
    """Records what is posted to it."""

    url: str
    posts: list[tuple[str, bytes]] = field(default_factory=list)

    def resources(self) -> list[dict[str, str]]:
        return [
            {each.key: each.value.string_value for each in group.resource.attributes}
            for _, body in self.posts
            for group in ExportTraceServiceRequest.FromString(body).resource_spans
        ]

    def spans(self) -> list[Span]:
        return [
            span
            for _, body in self.posts
            for group in ExportTraceServiceRequest.FromString(body).resource_spans
            for scope in group.scope_spans
            for span in scope.spans
        ]


@pytest.fixture
def collector() -> Iterator[Collector]:
    """A collector on loopback."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collecting.posts.append((self.path, body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collecting = Collector(f"http://127.0.0.1:{listening.server_address[1]}")
    thread = threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    yield collecting
    listening.shutdown()
    listening.server_close()


def send_requests(server: Started, **headers: str) -> str:
    """Store and search for the marker, request an unknown route and an unknown memory; return the key."""
    key = server.exported["KEY"]
    with httpx.Client(
        base_url=server.url, headers={"Authorization": f"Bearer {key}", **headers}, trust_env=False, timeout=30
    ) as http:
        project = {"projectId": server.exported["PROJECT"]}
        http.post("/v1/memories", json={**project, "content": f"the {MARKER} of old"}).raise_for_status()
        http.post("/v1/search", json={**project, "query": MARKER}).raise_for_status()
        http.get("/v1/timeline", params={**project, "query": MARKER}).raise_for_status()
        http.get(f"/v1/memories/{MARKER}")
        http.get(f"/{MARKER}/{key}")
    return key


def stop(server: Started) -> float:
    began = time.monotonic()
    server.process.terminate()
    server.process.wait(timeout=30)
    return time.monotonic() - began


def test_each_request_is_a_span_with_route_and_status(tmp_path: Path, collector: Collector):
    """Under the name in OTEL_SERVICE_NAME, in the client's trace; pending spans are sent on shutdown."""
    with serving(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, OTEL_SERVICE_NAME="ours") as server:
        send_requests(server, traceparent=f"00-{TRACE}-b7ad6b7169203331-01")
        stop(server)

    found = {
        (span.name, next(each.value.int_value for each in span.attributes if each.key == "http.response.status_code"))
        for span in collector.spans()
        if span.trace_id.hex() == TRACE
    }
    assert found == {
        ("POST /v1/memories", 201),
        ("POST /v1/search", 200),
        ("GET /v1/timeline", 200),
        ("GET /v1/memories/{memory_id}", 404),
        ("GET unmatched", 404),
    }
    assert {path for path, _ in collector.posts} == {"/v1/traces"}
    assert {resource["service.name"] for resource in collector.resources()} == {"ours"}


def test_spans_contain_no_text_query_or_key(tmp_path: Path, collector: Collector):
    """Checked byte for byte; the URL for spans only is used unchanged."""
    url = f"{collector.url}/spans"
    with serving(tmp_path, OTEL_EXPORTER_OTLP_TRACES_ENDPOINT=url) as server:
        key = send_requests(server)
        stop(server)

    sent = b"".join(body for _, body in collector.posts)
    assert {path for path, _ in collector.posts} == {"/spans"}
    assert b"/v1/search" in sent
    assert MARKER.encode() not in sent
    assert key.encode() not in sent


@pytest.mark.parametrize("off", [{"OTEL_SDK_DISABLED": "true"}, {"OTEL_TRACES_EXPORTER": "none"}])
def test_standard_switches_turn_tracing_off(tmp_path: Path, collector: Collector, off: dict[str, str]):
    """Also where a collector is configured for all programs of a machine."""
    with serving(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT=collector.url, **off) as server:
        send_requests(server)
        stop(server)

    assert collector.posts == []


def test_missing_collector_affects_neither_requests_nor_shutdown(tmp_path: Path):
    """Only the spans are lost."""
    with serving(tmp_path, OTEL_EXPORTER_OTLP_ENDPOINT="http://127.0.0.1:9") as server:
        send_requests(server)

        assert stop(server) < GRACE_SECONDS


def test_missing_extra_is_logged(monkeypatch: pytest.MonkeyPatch, logged: list):
    """The server starts anyway."""
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto", None)
    monkeypatch.delitem(sys.modules, "opentelemetry.exporter.otlp.proto.http", raising=False)

    assert tracing.start_tracing("http://127.0.0.1:9/v1/traces", "") is None
    assert [line["event"] for line in logged] == ["tracing_is_off"]


@pytest.mark.parametrize(
    ("variables", "url"),
    [
        ({}, ""),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318/"}, "http://c:4318/v1/traces"),
        ({"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_SDK_DISABLED": "TRUE"}, ""),
        (
            {"OTEL_EXPORTER_OTLP_ENDPOINT": "http://c:4318", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT": "http://t/x"},
            "http://t/x",
        ),
    ],
)
def test_url_follows_the_specification(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, variables: dict[str, str], url: str
):
    """The path for spans is appended to a base URL; a URL for spans only is used unchanged."""
    monkeypatch.chdir(tmp_path)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)

    assert Telemetry().spans_url == url


def test_opentelemetry_is_not_imported_without_tracing():
    """It would cost memory and start-up time."""
    code = "import sys, app.main; print(any(name.startswith('opentelemetry') for name in sys.modules))"

    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"
