"""Builds the vector index from the settings, for main.py and for commands."""

import os
from typing import Final

from app.settings import Settings
from app.store.database import Database
from app.vectors.chroma.client_config import DEFAULT, ClientConfig
from app.vectors.embedding import registry
from app.vectors.embedding.endpoint import EmbeddingEndpoint
from app.vectors.index import VectorIndex, VectorIndexConfig
from app.vectors.remote.client import IndexOwnerClient
from app.vectors.remote.index import RemoteIndex

_OPEN_COLLECTIONS: Final = 100
"""How many collections Chroma may hold in memory, shared by all processes that query it."""


def of(settings: Settings, database: Database) -> VectorIndex | None:
    """Return the index that the settings describe, not started yet; None when vectors or the embedder are off."""
    config = _config(settings)
    return None if config is None else VectorIndex(database, config)


def remote(settings: Settings, database: Database, owner: IndexOwnerClient) -> RemoteIndex | None:
    """Return the same index for a process that only queries it and leaves its maintenance to the owner."""
    config = _config(settings)
    share = max(1, _OPEN_COLLECTIONS // settings.workers)
    return None if config is None else RemoteIndex(database, config, owner, open_collections=share)


def _config(settings: Settings) -> VectorIndexConfig | None:
    endpoint = EmbeddingEndpoint(
        url=settings.embedder_url,
        model=settings.embedder_model,
        api_key=settings.embedder_api_key.get_secret_value(),
    )
    embedder = registry.create(settings.embedder, threads=1, endpoint=endpoint)
    if settings.vectors == "off" or embedder is None:
        return None
    offline = [registry.create(name, threads=1) for name in registry.OFFLINE if name != settings.embedder]
    return VectorIndexConfig(
        mode=settings.vectors,
        folder=settings.data_dir.absolute() / "chroma",
        url=settings.chroma_url,
        client_config=_client_config(settings),
        embedder=embedder,
        earlier=[model for model in offline if model is not None],
        # One core is left to requests: writes are 0.6 to 0.7 as fast as without indexing; with all cores, 0.3 to 0.45.
        threads=max(1, (os.cpu_count() or 1) - 1),
    )


def _client_config(settings: Settings) -> ClientConfig:
    """Return how to access the Chroma server; our own child process needs no credentials."""
    if settings.vectors != "http":
        return DEFAULT
    return ClientConfig(
        tenant=settings.chroma_tenant,
        database=settings.chroma_database,
        auth_header=settings.chroma_auth_header,
        api_key=settings.chroma_api_key.get_secret_value(),
        ca_file=settings.chroma_ca_file,
    )
