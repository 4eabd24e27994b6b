"""A remote endpoint: batches, retries, failures, and its key."""

import hashlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from app.vectors import embedding
from app.vectors.embedding import endpoint
from app.vectors.errors import EmbedderFailed


class Endpoint(BaseHTTPRequestHandler):
    """Returns the hash of each text as its vector, after the failures that the test has set."""

    def do_POST(self) -> None:
        server = self.server
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.requests.append((self.path, self.headers.get("Authorization"), len(request["input"])))
        status = server.failures.pop(0) if server.failures else 200
        entries = [{"index": n, "embedding": vector_of(text)} for n, text in enumerate(request["input"])]
        body = json.dumps({"data": entries[::-1]}).encode() if status == 200 else b"{}"
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def vector_of(text: str) -> list[float]:
    return [float(byte) for byte in hashlib.sha256(text.encode()).digest()[:16]]


@pytest.fixture
def server() -> Iterator[ThreadingHTTPServer]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Endpoint) as running:
        running.requests, running.failures = [], []
        thread = threading.Thread(target=running.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield running
        running.shutdown()
        thread.join()


@pytest.fixture
def remote(server: ThreadingHTTPServer) -> Iterator[endpoint.EndpointEmbedder]:
    config = endpoint.EmbeddingEndpoint(f"http://127.0.0.1:{server.server_port}/v1", "text-embedding", "sk-secret")
    embedder = endpoint.EndpointEmbedder(config, timeout_seconds=5, sleep=lambda _: None)
    yield embedder
    embedder.close()


def test_endpoint_gets_batches_and_the_order_is_restored(server, remote):
    """Each text gets its own vector, although the endpoint returns them in another order."""
    texts = [f"text {n}" for n in range(150)]
    expected = embedding.unit(np.asarray([vector_of(text) for text in texts], dtype=np.float32))
    assert np.allclose(remote.embed(texts), expected, atol=1e-6)
    assert [count for _, _, count in server.requests] == [64, 64, 22, 1]


def test_key_is_sent_to_the_endpoint_and_not_part_of_the_repr(server, remote):
    """The key is only sent in the header."""
    remote.embed_query("text")
    assert server.requests[0][:2] == ("/v1/embeddings", "Bearer sk-secret")
    assert "sk-secret" not in repr(remote._endpoint)


def test_transient_failures_of_the_endpoint_are_retried(server, remote):
    """The caller does not notice a 503 followed by a 429."""
    server.failures[:] = [503, 429]
    assert remote.embed(["text"]).shape == (1, 16)


def test_persistent_failure_of_the_endpoint_is_reported(server, remote):
    """After three attempts, with the status."""
    server.failures[:] = [500, 500, 500]
    with pytest.raises(EmbedderFailed, match="status 500"):
        remote.embed(["text"])


def test_rejected_key_is_not_retried(server, remote):
    """Another attempt with the same key would not help."""
    server.failures[:] = [401, 200]
    with pytest.raises(EmbedderFailed, match="status 401"):
        remote.embed(["text"])
    assert len(server.requests) == 1


def test_query_is_not_retried_and_fails_fast_afterwards(server, remote):
    """Searches do not wait for an endpoint that has just failed."""
    server.failures[:] = [503, 200]
    for _ in range(2):
        with pytest.raises(EmbedderFailed):
            remote.embed_query("text")
    assert len(server.requests) == 1


def test_unreachable_endpoint_raises_embedder_failed():
    """A closed port raises the exception that callers handle."""
    unreachable = endpoint.EmbeddingEndpoint("http://127.0.0.1:9/v1", "m", "")
    with pytest.raises(EmbedderFailed, match="ConnectError"):
        endpoint.EndpointEmbedder(unreachable, sleep=lambda _: None).embed(["text"])
