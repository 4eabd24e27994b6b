"""Chroma stops and comes back while memories are written: nothing is lost, and nothing remains that was deleted."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from app.vectors import embedding
from app.vectors.embedding import Vectors
from app.vectors.index import VectorIndex, VectorIndexConfig
from tests.chroma_server import free_port, running
from tests.databases import Databases
from tests.vectors.library import Library, opened

WRITES = 500


class HashEmbedder:
    """Embeds a text as its hash: these tests do not depend on meaning."""

    model_id, version, dimensions = "quick", "1", 8
    is_remote = False

    def embed(self, texts: Sequence[str]) -> Vectors:
        rows = [np.random.default_rng(sum(text.encode())).normal(size=self.dimensions) for text in texts]
        return embedding.unit(np.asarray(rows, dtype=np.float32).reshape(len(rows), self.dimensions))

    def embed_query(self, text: str) -> Vectors:
        return self.embed([text])[0]

    def supports_script(self, script: str) -> bool:
        return True


@pytest.fixture
def port() -> int:
    return free_port()


@pytest.fixture
def library(databases: Databases, tmp_path: Path, port: int) -> Iterator[Library]:
    with opened(databases, tmp_path, HashEmbedder()) as library:
        library.index.close()
        yield library


@contextmanager
def indexing(library: Library, port: int) -> Iterator[VectorIndex]:
    """Run an index against the server at this port."""
    config = VectorIndexConfig(
        mode="http",
        folder=library.folder,
        url=f"http://127.0.0.1:{port}",
        embedder=library.embedder,
        backoff_seconds=0.2,
    )
    index = VectorIndex(library.database, config)
    index.start()
    yield index
    index.close()


def wait_until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 60
    while not (is_met := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert is_met


def test_index_is_exact_after_an_outage_and_a_restart(library: Library, port: int, tmp_path: Path):
    """500 writes with edits and deletes, while Chroma is killed and restarted, then a restart of our own."""
    folder = tmp_path / "remote"
    written: list[str] = []

    def write(count: int) -> None:
        for number in range(count):
            written.append(library.add(title=f"Memory {len(written)}", narrative="words", facts=[f"fact {number}"]))
            if number % 7 == 0:
                library.change(written[-1], narrative="other words")
            if number % 11 == 0:
                library.remove(written.pop())

    with indexing(library, port) as index:
        with running(folder, port):
            wait_until(lambda: index.state == "ready")
            write(WRITES // 3)
        write(WRITES // 3)
        with running(folder, port):
            write(WRITES - 2 * (WRITES // 3))
    with running(folder, port), indexing(library, port) as restarted:
        wait_until(lambda: restarted.state == "ready")
        wait_until(lambda: library.outbox() == [])
        differences = restarted.repair.compare(library.project_id)
    assert (differences.missing, differences.stale, differences.orphans, differences.pending) == (0, 0, 0, 0)
    assert differences.documents == 2 * len(written)


def test_memory_deleted_during_an_outage_is_not_found_afterwards(library: Library, port: int, tmp_path: Path):
    """The deletion waited in the outbox."""
    folder = tmp_path / "remote"
    with indexing(library, port) as index:
        with running(folder, port):
            wait_until(lambda: index.state == "ready")
            deleted, kept = library.add(narrative="to be deleted"), library.add(narrative="to be kept")
            wait_until(lambda: library.outbox() == [])
        library.remove(deleted)
        with running(folder, port):
            wait_until(lambda: library.outbox() == [])
            candidates = index.semantic_search.candidates([library.project_id], "to be deleted", limit=5)
    assert [candidate.memory_id for candidate in candidates] == [kept]
