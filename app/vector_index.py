"""From settings to the vector index. Used where parts are joined: by main.py and by commands."""

import os

from app.settings import Settings
from app.store.database import Database
from app.vectors.embedding import choice
from app.vectors.embedding.endpoint import EndpointAddress
from app.vectors.index import Choice, VectorIndex


def of(settings: Settings, database: Database) -> VectorIndex | None:
    """Return the index that the settings describe, not yet started; None when vectors or the embedder are off."""
    address = EndpointAddress(
        url=settings.embedder_url,
        model=settings.embedder_model,
        api_key=settings.embedder_api_key.get_secret_value(),
    )
    embedder = choice.choose(settings.embedder, threads=1, address=address)
    if settings.vectors == "off" or embedder is None:
        return None
    offline = [choice.choose(name, threads=1) for name in choice.OFFLINE if name != settings.embedder]
    return VectorIndex(
        database,
        Choice(
            mode=settings.vectors,
            folder=settings.data_dir.absolute() / "chroma",
            url=settings.chroma_url,
            embedder=embedder,
            earlier=[one for one in offline if one is not None],
            # One core is left to requests: posts beside the mirror are 0.6 to 0.7 of those without; 0.3 to 0.45 on all.
            threads=max(1, (os.cpu_count() or 1) - 1),
        ),
    )
