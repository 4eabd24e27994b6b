"""One process owns the index and others query it; here both ends of the pipe are in the same process."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from multiprocessing import Pipe
from pathlib import Path

import pytest

from app.vectors import collection_names
from app.vectors.errors import ChromaConnectionLost, IndexBehind, TimedOut, VectorsUnavailable
from app.vectors.index import VectorIndexConfig
from app.vectors.remote import client
from app.vectors.remote.client import IndexOwnerClient
from app.vectors.remote.index import RemoteIndex
from tests.databases import Databases
from tests.vectors.library import Counting, Library, opened

FACT = "The payment gateway waits three seconds for the bank."


@pytest.fixture
def library(databases: Databases, tmp_path: Path) -> Iterator[Library]:
    with opened(databases, tmp_path, Counting()) as library:
        yield library


@pytest.fixture
def owner(library: Library) -> Iterator[IndexOwnerClient]:
    """The library's index, seen from another process."""
    ours, theirs = Pipe()
    serving = threading.Thread(target=client.serve, args=(library.index, ours))
    serving.start()
    with theirs:
        yield IndexOwnerClient(theirs)
    serving.join(timeout=10)
    assert not serving.is_alive()


@pytest.fixture
def remote(library: Library, owner: IndexOwnerClient) -> Iterator[RemoteIndex]:
    config = VectorIndexConfig(
        mode="embedded",
        folder=library.folder / "chroma",
        url="",
        embedder=library.embedder,
        backoff_seconds=0.2,
    )
    with closing(RemoteIndex(library.database, config, owner, open_collections=10)) as index:
        yield index


def find(remote: RemoteIndex, library: Library) -> list[str]:
    """Return what the remote index finds; nothing while it is unavailable."""
    with suppress(VectorsUnavailable):
        return [
            candidate.memory_id for candidate in remote.semantic_search.candidates([library.project_id], FACT, limit=1)
        ]
    return []


def soon(condition) -> bool:
    deadline = time.monotonic() + 15
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_remote_index_finds_what_the_owner_indexed(library: Library, remote: RemoteIndex):
    """It only embeds the query; the memory was embedded once, by the owner."""
    memory_id = library.add(text=FACT)
    library.index.start()

    assert soon(lambda: find(remote, library) == [memory_id])
    assert library.embedder.texts.count(FACT) == 1


def test_remote_index_does_not_answer_while_the_owner_is_refilling(library: Library, remote: RemoteIndex):
    """The results of an incomplete index would look complete."""
    memory_id = library.add(text=FACT)
    library.index.start()
    assert soon(lambda: find(remote, library) == [memory_id])
    library.index._stop.set()  # so that the value set below remains
    library.index._mirroring.join(10)
    library.index._refilling = frozenset({library.project_id})

    with pytest.raises(IndexBehind):
        remote.semantic_search.candidates([library.project_id], FACT, limit=1)
    library.index._refilling = frozenset()
    assert soon(lambda: find(remote, library) == [memory_id])


def test_status_is_that_of_the_owner(library: Library, remote: RemoteIndex):
    """It is polled in the background, so that reading it never blocks."""
    assert remote.state == "connecting"
    library.index.start()
    remote.start()

    assert soon(lambda: remote.state == "ready")
    assert (remote.last_error, remote.backoff_seconds) == (None, 0.0)


def test_dead_chroma_is_restarted_by_the_search_that_needs_it(library: Library, remote: RemoteIndex):
    """That search already succeeds."""
    memory_id = library.add(text=FACT)
    library.index.start()
    assert soon(lambda: find(remote, library) == [memory_id])
    library.index.server.renew()

    assert find(remote, library) == [memory_id]


def test_chroma_is_restarted_once_for_several_requests(library: Library, owner: IndexOwnerClient):
    """A request about an old address does not restart the new one."""
    first = owner.address()
    owner.renew(first)
    second = owner.address()
    owner.renew(first)

    assert second != first
    assert owner.address() == second


def test_lost_collection_reported_by_a_remote_index_is_refilled(library: Library, remote: RemoteIndex):
    """The owner audits its collections, although it has not noticed the loss itself."""
    memory_id = library.add(text=FACT)
    library.index.start()
    assert soon(lambda: find(remote, library) == [memory_id])
    library.index.collections.drop(collection_names.live(library.project_id))

    find(remote, library)

    assert soon(lambda: find(remote, library) == [memory_id])


def test_rebuild_is_not_reported_as_a_loss(library: Library, remote: RemoteIndex, monkeypatch: pytest.MonkeyPatch):
    """The collection has been replaced by another one, so no audit is needed."""
    memory_id = library.add(text=FACT)
    library.index.start()
    assert soon(lambda: find(remote, library) == [memory_id])
    audits: list[str] = []
    monkeypatch.setattr(remote._owner, "request_audit", lambda: audits.append("audit"))

    library.index.repair.rebuild(library.project_id)

    assert find(remote, library) == [memory_id]
    assert audits == []


def test_late_reply_is_not_mistaken_for_another():
    """Replies carry the number of their call."""
    ours, theirs = Pipe()
    with ours, theirs:
        owner = IndexOwnerClient(theirs, timeout_seconds=0.1)
        with pytest.raises(TimedOut):
            owner.status()
        number, method, _ = ours.recv()
        ours.send((number, method))
        ours.send((number + 1, "the second reply"))

        assert owner.status() == "the second reply"


def test_dead_owner_is_an_outage():
    """Not an error of the request."""
    ours, theirs = Pipe()
    ours.close()
    with theirs, pytest.raises(ChromaConnectionLost):
        IndexOwnerClient(theirs).status()


def test_failure_in_the_owner_does_not_close_the_pipe(owner: IndexOwnerClient):
    """The next call is answered."""
    with pytest.raises(ChromaConnectionLost):
        owner._call("require", 1, 2, 3)

    assert owner.status().state == "connecting"
