"""Is the index there? Connect, list, query, with the stage that was reached and how long each took."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from app.vectors.chroma.collections import Collections
from app.vectors.embedding import Embedder
from app.vectors.errors import VectorsUnavailable

Stage = Literal["connect", "list", "embed", "query", "done"]


@dataclass(frozen=True, slots=True)
class Probed:
    """How far the probe came: `stage` is `done`, or the one that failed with `error`."""

    ok: bool
    stage: Stage
    error: str | None
    milliseconds: dict[str, float]


def probe(collections: Collections, embedder: Embedder) -> Probed:
    """Go through the stages until one fails. Every call has a time limit."""
    names: list[str] = []
    stages: list[tuple[Stage, Callable[[], object]]] = [
        ("connect", collections.connect),
        ("list", lambda: names.extend(collections.names())),
        ("embed", lambda: embedder.embed_query("a question")),
        ("query", lambda: _query_one(collections, embedder, names)),
    ]
    milliseconds: dict[str, float] = {}
    for stage, call in stages:
        started = time.perf_counter()
        try:
            call()
        except VectorsUnavailable as failure:
            return Probed(ok=False, stage=stage, error=str(failure), milliseconds=milliseconds)
        milliseconds[stage] = round((time.perf_counter() - started) * 1000, 1)
    return Probed(ok=True, stage="done", error=None, milliseconds=milliseconds)


def _query_one(collections: Collections, embedder: Embedder, names: list[str]) -> None:
    """Ask the first collection whose vectors have the embedder's length; without any there is nothing to ask."""
    for name in names[:1]:
        found = collections.find(name)
        if found and found.model and found.model.dimensions == embedder.dimensions:
            collections.query(name, embedder.embed_query("a question"), limit=1)
