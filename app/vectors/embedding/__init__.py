"""Text to unit vectors. Knows models and their limits; knows nothing of memories, of Chroma or of settings."""

import functools
import threading
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import numpy as np
from numpy.typing import NDArray

Vectors = NDArray[np.float32]
T = TypeVar("T")


class Embedder(Protocol):
    """One embedding model. Calls block, may come from any thread, and raise EmbedderFailed."""

    @property
    def model_id(self) -> str:
        """The model's name; together with `version` it says whose vectors may be compared."""

    @property
    def version(self) -> str:
        """Changes whenever the same text would get another vector."""

    @property
    def dimensions(self) -> int:
        """The length of a vector."""

    @property
    def is_remote(self) -> bool:
        """Say whether embedding means waiting for somebody else, and not for this machine's cores."""

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return unit vectors of shape (len(texts), dimensions) for texts that are stored."""

    def embed_query(self, text: str) -> Vectors:
        """Return the unit vector of shape (dimensions,) for a text that is asked."""

    def reads(self, script: str) -> bool:
        """Say whether the model understands a script, by its ISO 15924 code (`Latn`, `Hani`, `Hira`, `Hang`)."""


def unit(rows: Vectors) -> Vectors:
    """Scale each row to length one; a row of zeros stays as it is."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    scaled: Vectors = (rows / np.where(lengths == 0, 1, lengths)).astype(np.float32)
    return scaled


def remember_queries(embedder: Embedder, *, entries: int = 2_048) -> Callable[[str], Vectors]:
    """Return the embedder's `embed_query` with its last answers remembered; a failure is not."""

    @functools.lru_cache(maxsize=entries)
    def embed_query(text: str) -> Vectors:
        vector = embedder.embed_query(text)
        vector.flags.writeable = False
        return vector

    return embed_query


class Once(Generic[T]):
    """A value that the first caller makes while the others wait; a failed attempt is made again by the next."""

    def __init__(self, make: Callable[[], T]) -> None:
        self._make = make
        self._made: list[T] = []
        self._lock = threading.Lock()

    def get(self) -> T:
        """Return the value, making it if nobody has."""
        if not self._made:
            with self._lock:
                if not self._made:
                    self._made.append(self._make())
        return self._made[0]
