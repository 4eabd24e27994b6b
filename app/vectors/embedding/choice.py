"""From a model's short name to the model. The one place that knows them all."""

from typing import Final, Literal

from app.vectors.embedding import Embedder
from app.vectors.embedding.endpoint import EndpointAddress, EndpointEmbedder
from app.vectors.embedding.minilm import MiniLM
from app.vectors.embedding.multilingual import MultilingualE5

Name = Literal["minilm", "multilingual", "openai", "off"]

OFFLINE: Final[tuple[Name, ...]] = ("minilm", "multilingual")
"""Those that need nobody: collections of theirs can be asked whatever the embedder is now."""


def choose(name: Name, *, threads: int, address: EndpointAddress | None = None) -> Embedder | None:
    """Return the named embedder, not yet loaded; None for `off`. `openai` needs the address of its endpoint."""
    match name:
        case "minilm":
            return MiniLM(threads=threads)
        case "multilingual":
            return MultilingualE5(threads=threads)
        case "openai":
            if address is None:
                raise ValueError("The embedder `openai` needs an address.")
            return EndpointEmbedder(address)
        case "off":
            return None
