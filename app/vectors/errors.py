"""Why semantic search is unavailable. Never an error of a request: callers turn these into a degraded response."""

from typing import ClassVar, Literal

Reason = Literal[
    "chroma_connection", "chroma_error", "chroma_not_initialized", "chroma_timeout", "embedder_error", "index_behind"
]


class VectorsUnavailable(Exception):
    """Semantic search is currently unavailable; `reason` is the documented code."""

    reason: ClassVar[Reason]


class NotInitialized(VectorsUnavailable):
    """The index is not connected yet: it is starting, or another process owns its folder."""

    reason = "chroma_not_initialized"


class OwnedElsewhere(NotInitialized):
    """Another process owns the folder."""


class ChromaConnectionLost(VectorsUnavailable):
    """Chroma cannot be reached."""

    reason = "chroma_connection"


class TimedOut(VectorsUnavailable):
    """Chroma did not respond within the time limit."""

    reason = "chroma_timeout"


class ChromaRefused(VectorsUnavailable):
    """Chroma responded with an error."""

    reason = "chroma_error"


class EmbedderFailed(VectorsUnavailable):
    """The model is missing or corrupt, or its endpoint does not respond."""

    reason = "embedder_error"


class IndexBehind(VectorsUnavailable):
    """The index is incomplete for the requested projects: it is being refilled, or rebuilt for another model."""

    reason = "index_behind"
