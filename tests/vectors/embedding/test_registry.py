"""An embedder by its name."""

from typing import get_args

import pytest

from app.vectors.embedding import registry
from app.vectors.embedding.endpoint import EmbeddingEndpoint

ENDPOINT = EmbeddingEndpoint("http://127.0.0.1:9/v1", "text-embedding", "")


def test_off_is_no_embedder():
    """Without semantic search no model is loaded."""
    assert registry.create("off", threads=1) is None


def test_openai_needs_an_endpoint():
    """There is no default to which texts would be sent."""
    with pytest.raises(ValueError, match="needs an endpoint"):
        registry.create("openai", threads=1)


def test_offline_embedders_are_those_that_run_here():
    """Only their collections can be queried whichever embedder is configured."""
    names = [name for name in get_args(registry.EmbedderName) if name != "off"]
    embedders = {name: registry.create(name, threads=1, endpoint=ENDPOINT) for name in names}

    assert {name for name, embedder in embedders.items() if not embedder.is_remote} == set(registry.OFFLINE)
