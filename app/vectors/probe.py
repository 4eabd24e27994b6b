"""Health probe of the index: connect, list, embed, query, with the duration of each stage."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from app.vectors.chroma.collections import Collections
from app.vectors.embedding import Embedder
from app.vectors.errors import VectorsUnavailable

Stage = Literal["connect", "list", "embed", "query", "done"]


@dataclass(frozen=True, slots=True)
class ProbeResult:
    """The outcome: `stage` is `done`, or the stage that failed with `error`."""

    ok: bool
    stage: Stage
    error: str | None
    milliseconds: dict[str, float]


def probe(collections: Collections, embedder: Embedder) -> ProbeResult:
    """Run the stages until one fails. Every call has a time limit."""
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
            return ProbeResult(ok=False, stage=stage, error=str(failure), milliseconds=milliseconds)
        milliseconds[stage] = round((time.perf_counter() - started) * 1000, 1)
    return ProbeResult(ok=True, stage="done", error=None, milliseconds=milliseconds)


def _query_one(collections: Collections, embedder: Embedder, names: list[str]) -> None:
    """Query the first collection, if there is one with vectors of the embedder's length."""
    for name in names[:1]:
        collection = collections.find(name)
        if collection and collection.model and collection.model.dimensions == embedder.dimensions:
            collections.query(name, embedder.embed_query("a question"), limit=1)
