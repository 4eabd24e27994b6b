"""Embedding many texts in the background: on several threads, with the vectors in order."""

import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import numpy as np
import pytest

from app.vectors.embedding import Vectors
from app.vectors.embedding.background import BackgroundEmbedder


class Lengths:
    """An embedder whose vectors are the lengths of the texts; it records its batches and where they run."""

    model_id = version = "lengths"
    dimensions = 1

    def __init__(self, *, is_remote: bool = False) -> None:
        self.is_remote = is_remote
        self.batches: list[list[str]] = []
        self.threads: set[int] = set()
        self.priorities: set[int] = set()

    def embed(self, texts: Sequence[str]) -> Vectors:
        self.batches.append(list(texts))
        self.threads.add(threading.get_ident())
        self.priorities.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return np.array([[len(text)] for text in texts], np.float32)

    def embed_query(self, text: str) -> Vectors:
        return self.embed([text])[0]

    def supports_script(self, script: str) -> bool:
        return True


@contextmanager
def background(model: Lengths) -> Iterator[BackgroundEmbedder]:
    with closing(BackgroundEmbedder(model, threads=2)) as opened:
        yield opened


TEXTS = ["x" * ((number * 37) % 101) for number in range(50)]


def test_vectors_are_in_the_order_of_their_texts():
    """Although texts of similar length are embedded together, to pad less."""
    model = Lengths()
    with background(model) as opened:
        vectors = opened.embed(TEXTS)

    assert vectors[:, 0].tolist() == [len(text) for text in TEXTS]
    assert max(max(map(len, batch)) - min(map(len, batch)) for batch in model.batches) < 30


def test_local_model_never_runs_in_the_callers_thread():
    """Which keeps its priority, while that of the threads is lower."""
    model = Lengths()
    with background(model) as opened:
        opened.embed(TEXTS)

    assert threading.get_ident() not in model.threads
    if sys.platform == "linux":
        assert min(model.priorities) > os.getpriority(os.PRIO_PROCESS, threading.get_native_id())


def test_remote_model_is_called_in_the_callers_thread_with_all_texts():
    """At exit, Python would wait for a thread that waits for an endpoint."""
    model = Lengths(is_remote=True)
    with background(model) as opened:
        opened.embed(TEXTS)

    assert (model.batches, model.threads) == ([TEXTS], {threading.get_ident()})


def test_failure_of_one_batch_reaches_the_caller():
    """No vector is left at zero without an error."""

    class Failing(Lengths):
        def embed(self, texts: Sequence[str]) -> Vectors:
            if "" in texts:
                raise ValueError("no text")
            return super().embed(texts)

    with background(Failing()) as opened, pytest.raises(ValueError, match="no text"):
        opened.embed(["x" * 50] * 20 + [""])
