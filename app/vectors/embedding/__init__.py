"""Embedding: text to unit vectors. Knows models and their limits, but nothing of memories, Chroma or settings."""

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
T = TypeVar("T")


class Embedder(Protocol):
    """An embedding model. Thread-safe; calls block, and raise EmbedderFailed."""

    @property
    def model_id(self) -> str:
        """The model's name; only vectors of the same name and version are comparable."""

    @property
    def version(self) -> str:
        """Changes whenever the vector of a text would change."""

    @property
    def dimensions(self) -> int:
        """The length of a vector."""

    @property
    def is_remote(self) -> bool:
        """Whether embedding waits for another machine instead of using this one's cores."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return unit vectors of shape (len(texts), dimensions) for texts to store."""

    def embed_query(self, text: str) -> Vectors:
        """Return the unit vector of shape (dimensions,) of a search query."""

    def supports_script(self, script: str) -> bool:
        """Return whether the model understands a script, given as ISO 15924 code (`Latn`, `Hani`, `Hira`, `Hang`)."""


def unit(rows: Vectors) -> Vectors:
    """Scale each row to length 1; rows of zeros are kept."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Vectors = (rows / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    return scaled


def cache_queries(embedder: Embedder, *, entries: int = 2_048) -> Callable[[str], Vectors]:
    """Return the embedder's `embed_query` with an LRU cache; failures are not cached."""

    @functools.lru_cache(maxsize=entries)
    def embed_query(text: str) -> Vectors:
        vector = embedder.embed_query(text)
        vector.flags.writeable = False
        return vector

    return embed_query


class Lazy(Generic[T]):
    """A value that the first caller creates while others wait. After a failure the next caller tries again."""

    def __init__(self, create: Callable[[], T]) -> None:
        self._create = create
        self._value: list[T] = []
        self._lock = threading.Lock()

    def get(self) -> T:
        """Return the value; create it first if necessary."""
        if not self._value:
            with self._lock:
                if not self._value:
                    self._value.append(self._create())
        return self._value[0]
