"""Fixtures of the tests of Chroma."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from app.vectors import documents, embedding
from app.vectors.chroma.collections import Collections, Model
from app.vectors.chroma.connection import Connection
from app.vectors.chroma.server import ChildServer

MODEL = Model("test-model", "1", 8)


@pytest.fixture
def server(tmp_path: Path) -> Iterator[ChildServer]:
    running = ChildServer(tmp_path / "data" / "chroma")
    yield running
    running.close()


@pytest.fixture
def connection(server: ChildServer) -> Iterator[Connection]:
    opened = Connection(server, backoff_seconds=0.2)
    yield opened
    opened.close()


@pytest.fixture
def notified() -> list[tuple[str, str]]:
    """The collections that were created or lost."""
    return []


@pytest.fixture
def collections(connection: Connection, notified: list[tuple[str, str]]) -> Collections:
    return Collections(
        connection,
        on_created=lambda name: notified.append(("created", name)),
        on_lost=lambda name: notified.append(("lost", name)),
        sleep=lambda _: None,
    )


def make_documents(count: int, *, memory: str = "m", text: str = "text") -> list[documents.Document]:
    """Return one document for each of `count` memories."""
    return [
        documents.Document(
            id=f"mem_{memory}{n}_text",
            text=f"{text} {n}",
            text_hash=documents.hash_of(f"{text} {n}"),
            metadata={"memory_item_id": f"{memory}{n}", "text_hash": documents.hash_of(f"{text} {n}")},
        )
        for n in range(count)
    ]


def make_vectors(count: int, *, seed: int = 0, dimensions: int = MODEL.dimensions) -> embedding.Vectors:
    """Return unit vectors that are the same for the same seed."""
    rows = np.random.default_rng(seed).normal(size=(count, dimensions)).astype(np.float32)
    return embedding.unit(rows)
