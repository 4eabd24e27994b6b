"""From settings to the vector index. Used where parts are joined: by main.py and by commands."""

import os
from typing import Final

from app.settings import Settings
from app.store.database import Database
from app.vectors.chroma.client_config import STANDARD, Access
from app.vectors.embedding import choice as embedders
from app.vectors.embedding.endpoint import EndpointAddress
from app.vectors.index import Choice, VectorIndex
from app.vectors.remote.client import Keeper
from app.vectors.remote.index import Follower

_OPEN_COLLECTIONS: Final = 100
"""Chroma holds so many in memory, however many processes ask it."""


def of(settings: Settings, database: Database) -> VectorIndex | None:
    """Return the index that the settings describe, not yet started; None when vectors or the embedder are off."""
    choice = _choice(settings)
    return None if choice is None else VectorIndex(database, choice)


def following(settings: Settings, database: Database, keeper: Keeper) -> Follower | None:
    """Return the same index for a process that only asks it."""
    choice = _choice(settings)
    share = max(1, _OPEN_COLLECTIONS // settings.workers)
    return None if choice is None else Follower(database, choice, keeper, open_collections=share)


def _choice(settings: Settings) -> Choice | None:
    address = EndpointAddress(
        url=settings.embedder_url,
        model=settings.embedder_model,
        api_key=settings.embedder_api_key.get_secret_value(),
    )
    embedder = embedders.choose(settings.embedder, threads=1, address=address)
    if settings.vectors == "off" or embedder is None:
        return None
    offline = [embedders.choose(name, threads=1) for name in embedders.OFFLINE if name != settings.embedder]
    return Choice(
        mode=settings.vectors,
        folder=settings.data_dir.absolute() / "chroma",
        url=settings.chroma_url,
        access=_access(settings),
        embedder=embedder,
        earlier=[one for one in offline if one is not None],
        # One core is left to requests: posts beside the mirror are 0.6 to 0.7 of those without; 0.3 to 0.45 on all.
        threads=max(1, (os.cpu_count() or 1) - 1),
    )


def _access(settings: Settings) -> Access:
    """Return how the Chroma server is used; a child of ours asks for nothing."""
    if settings.vectors != "http":
        return STANDARD
    return Access(
        tenant=settings.chroma_tenant,
        database=settings.chroma_database,
        auth_header=settings.chroma_auth_header,
        api_key=settings.chroma_api_key.get_secret_value(),
        ca_file=settings.chroma_ca_file,
    )
