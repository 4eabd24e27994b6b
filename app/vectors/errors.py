"""Why a search by meaning cannot answer. Never an error of a request: callers turn it into a degraded reply."""

from typing import ClassVar, Literal

Reason = Literal[
    "chroma_connection", "chroma_error", "chroma_not_initialized", "chroma_timeout", "embedder_error", "index_behind"
]


class VectorsUnavailable(Exception):
    """Meaning cannot be searched at the moment; `reason` is the documented code."""

    reason: ClassVar[Reason]


class NotInitialized(VectorsUnavailable):
    """The index was never connected: it is starting, or another process owns its folder."""

    reason = "chroma_not_initialized"


class OwnedElsewhere(NotInitialized):
    """Another process has the folder."""


class ConnectionLost(VectorsUnavailable):
    """Nobody answers at Chroma's address."""

    reason = "chroma_connection"


class TimedOut(VectorsUnavailable):
    """Chroma did not answer within the time limit."""

    reason = "chroma_timeout"


class ChromaRefused(VectorsUnavailable):
    """Chroma answered with an error."""

    reason = "chroma_error"


class EmbedderFailed(VectorsUnavailable):
    """The model is missing, damaged, or its endpoint does not answer."""

    reason = "embedder_error"


class IndexBehind(VectorsUnavailable):
    """The index does not hold yet what was asked about: it is being filled again, or for another model."""

    reason = "index_behind"
