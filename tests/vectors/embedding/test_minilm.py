"""The built-in model: its vectors, its file, and its use of memory."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from app.vectors import embedding
from app.vectors.embedding import minilm
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
