"""Vectors from any OpenAI-compatible `/embeddings` endpoint. Knows that protocol and nothing of memories."""

import random
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import httpx
import numpy as np

from app.vectors import embedding
from app.vectors.embedding import Vectors
from app.vectors.errors import EmbedderFailed

_BATCH_TEXTS: Final = 64
_MAX_CHARS: Final = 24_000
"""About the 8,192 tokens that such endpoints read; a longer text would fail its whole batch."""
_RETRIED_STATUSES: Final = frozenset({408, 409, 425, 429, 500, 502, 503, 504})
_ATTEMPTS: Final = 3
_QUERY_SECONDS: Final = 1.5
"""A search waits for the query's vector: there is one attempt, and a lexical search if it fails."""
_QUERY_PAUSE_SECONDS: Final = 10.0
"""After a failed attempt, queries fail immediately for this long."""


@dataclass(frozen=True, slots=True)
class EmbeddingEndpoint:
    """Where the model is, and with which key. The key is not part of the repr."""

    url: str
    model: str
    api_key: str = field(repr=False)


class EndpointEmbedder:
    """A remote model. Its dimensions are those of its first vector, so reading them may call the endpoint."""

    version = "1"
    is_remote = True

    def __init__(
        self, endpoint: EmbeddingEndpoint, *, timeout_seconds: float = 20.0, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        headers = {"Authorization": f"Bearer {endpoint.api_key}"} if endpoint.api_key else {}
        self._endpoint = endpoint
        self._timeout_seconds = timeout_seconds
        self._client = httpx.Client(headers=headers, trust_env=False)
        self._sleep = sleep
        self._retry_query_at = float("-inf")
        self._dimensions = embedding.Lazy(lambda: int(self._request_once("dimensions").shape[0]))

    @property
    def model_id(self) -> str:
        """The model's name at the endpoint."""
        return self._endpoint.model

    @property
    def dimensions(self) -> int:
        """The length of a vector, as the endpoint returns it."""
        return self._dimensions.get()

    def embed(self, texts: Sequence[str]) -> Vectors:
        """Return one unit vector per text, requested in batches of 64. Raises EmbedderFailed."""
        if not texts:
            return np.zeros((0, self.dimensions), dtype=np.float32)
        parts = [self._request([text[:_MAX_CHARS] for text in batch]) for batch in _batches(texts)]
        vectors = np.concatenate(parts)
        if vectors.shape[1] != self.dimensions:
            raise EmbedderFailed(f"The endpoint changed from {self.dimensions} to {vectors.shape[1]} dimensions.")
        return embedding.unit(vectors)

    def embed_query(self, text: str) -> Vectors:
        """Return the unit vector of a query, without retries. Raises EmbedderFailed."""
        return self._request_once(text[:_MAX_CHARS])

    def supports_script(self, script: str) -> bool:
        """Return True: an operator who chose an endpoint chose a model for their languages."""
        return True

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def _request_once(self, text: str) -> Vectors:
        """Request one vector without retries; after a failure, fail immediately for a while."""
        if time.monotonic() < self._retry_query_at:
            raise EmbedderFailed("The embedding endpoint has just failed.")
        try:
            vector: Vectors = embedding.unit(self._request([text], attempts=1, seconds=_QUERY_SECONDS))[0]
        except EmbedderFailed:
            self._retry_query_at = time.monotonic() + _QUERY_PAUSE_SECONDS
            raise
        return vector

    def _request(self, texts: list[str], *, attempts: int = _ATTEMPTS, seconds: float | None = None) -> Vectors:
        """Request one batch; retry after transient failures, with exponential backoff and jitter."""
        body = {"model": self._endpoint.model, "input": texts}
        for attempt in range(1, attempts + 1):
            failure = ""
            try:
                response = self._client.post(
                    f"{self._endpoint.url}/embeddings", json=body, timeout=seconds or self._timeout_seconds
                )
            except httpx.HTTPError as cause:
                failure = type(cause).__name__
            else:
                if response.is_success:
                    return _vectors(response, expected=len(texts))
                failure = f"status {response.status_code}"
                if response.status_code not in _RETRIED_STATUSES:
                    break
            if attempt < attempts:
                self._sleep(random.uniform(0.5, 1.0) * 2 ** (attempt - 1))  # noqa: S311 - jitter, not a secret
        raise EmbedderFailed(f"The embedding endpoint failed: {failure}.")


def _batches(texts: Sequence[str]) -> Iterator[Sequence[str]]:
    return (texts[start : start + _BATCH_TEXTS] for start in range(0, len(texts), _BATCH_TEXTS))


def _vectors(response: httpx.Response, *, expected: int) -> Vectors:
    """Return the vectors in the order of their texts; raise EmbedderFailed when the response is malformed."""
    try:
        entries: list[dict[str, Any]] = sorted(response.json()["data"], key=lambda entry: entry["index"])
        vectors = np.asarray([entry["embedding"] for entry in entries], dtype=np.float32)
    except (ValueError, KeyError, TypeError) as cause:
        raise EmbedderFailed("The embedding endpoint did not return a list of vectors.") from cause
    if vectors.ndim != 2 or len(vectors) != expected or not np.isfinite(vectors).all():
        raise EmbedderFailed("The embedding endpoint did not return the requested vectors.")
    return vectors
