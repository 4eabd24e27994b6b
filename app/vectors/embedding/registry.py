"""Creates an embedder from its short name. The only module that knows all of them."""

from typing import Final, Literal

from app.vectors.embedding import Embedder
from app.vectors.embedding.endpoint import EmbeddingEndpoint, EndpointEmbedder
from app.vectors.embedding.minilm import MiniLM
from app.vectors.embedding.multilingual import MultilingualE5

EmbedderName = Literal["minilm", "multilingual", "openai", "off"]

OFFLINE: Final[tuple[EmbedderName, ...]] = ("minilm", "multilingual")
"""Those that run locally: their collections can be queried whichever embedder is configured now."""


def create(name: EmbedderName, *, threads: int, endpoint: EmbeddingEndpoint | None = None) -> Embedder | None:
    """Return the named embedder, not loaded yet; None for `off`. `openai` needs its endpoint."""
    match name:
        case "minilm":
            return MiniLM(threads=threads)
        case "multilingual":
            return MultilingualE5(threads=threads)
        case "openai":
            if endpoint is None:
                raise ValueError("The embedder `openai` needs an endpoint.")
            return EndpointEmbedder(endpoint)
        case "off":
            return None
