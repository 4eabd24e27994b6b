"""One process keeps the index, others follow it: tried here with both ends of the line in one."""

import threading
import time
from collections.abc import Iterator
from contextlib import closing, suppress
from multiprocessing import Pipe
from pathlib import Path

import pytest

from app.vectors import collection_names
from app.vectors.errors import ConnectionLost, IndexBehind, TimedOut, VectorsUnavailable
from app.vectors.index import Choice
from app.vectors.remote import client
from app.vectors.remote.client import Keeper
from app.vectors.remote.index import Follower
from tests.stores import Stores
from tests.vectors.library import Counting, Library, opened

FACT = "The payment gateway waits three seconds for the bank."


@pytest.fixture
def library(stores: Stores, tmp_path: Path) -> Iterator[Library]:
    with opened(stores, tmp_path, Counting()) as made:
        yield made


@pytest.fixture
def keeper(library: Library) -> Iterator[Keeper]:
    """The library's index as another process sees it."""
    ours, theirs = Pipe()
    answering = threading.Thread(target=client.answer, args=(library.index, ours))
    answering.start()
    with theirs:
        yield Keeper(theirs)
    answering.join(timeout=10)
    assert not answering.is_alive()


@pytest.fixture
def follower(library: Library, keeper: Keeper) -> Iterator[Follower]:
    choice = Choice(
        mode="embedded",
        folder=library.folder / "chroma",
        url="",
        embedder=library.embedder,
        backoff_seconds=0.2,
    )
    with closing(Follower(library.database, choice, keeper, open_collections=10)) as made:
        yield made


def found(follower: Follower, library: Library) -> list[str]:
    """What the follower finds, nothing while it cannot say."""
    with suppress(VectorsUnavailable):
        return [one.memory_id for one in follower.meaning.candidates([library.project_id], FACT, limit=1)]
    return []


def soon(condition) -> bool:
    deadline = time.monotonic() + 15
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_a_follower_finds_what_the_keeper_mirrored(library: Library, follower: Follower):
    """It embeds the question only: the memory was embedded once, by the keeper."""
    memory_id = library.add(text=FACT)
    library.index.start()

    assert soon(lambda: found(follower, library) == [memory_id])
    assert library.embedder.texts.count(FACT) == 1


def test_a_follower_does_not_answer_for_what_the_keeper_is_filling(library: Library, follower: Follower):
    """An index that is not complete would look like one that has found all."""
    memory_id = library.add(text=FACT)
    library.index.start()
    assert soon(lambda: found(follower, library) == [memory_id])
    library.index._stop.set()  # what is noted now stays: nobody fills it
    library.index._mirroring.join(10)
    library.index._refilling = frozenset({library.project_id})

    with pytest.raises(IndexBehind):
        follower.meaning.candidates([library.project_id], FACT, limit=1)
    library.index._refilling = frozenset()
    assert soon(lambda: found(follower, library) == [memory_id])


def test_how_the_index_stands_is_the_keepers_word(library: Library, follower: Follower):
    """Heard in the background, so that nobody waits who asks."""
    assert follower.state == "connecting"
    library.index.start()
    follower.start()

    assert soon(lambda: follower.state == "ready")
    assert (follower.last_error, follower.backoff_seconds) == (None, 0.0)


def test_a_chroma_that_died_is_started_again_by_the_follower_that_misses_it(library: Library, follower: Follower):
    """In the search that misses it."""
    memory_id = library.add(text=FACT)
    library.index.start()
    assert soon(lambda: found(follower, library) == [memory_id])
    library.index.server.renew()

    assert found(follower, library) == [memory_id]


def test_chroma_is_renewed_once_however_many_ask(library: Library, keeper: Keeper):
    """Whoever asks about one that is gone already gets the new one."""
    first = keeper.address()
    keeper.renew(first)
    second = keeper.address()
    keeper.renew(first)

    assert second != first
    assert keeper.address() == second


def test_a_collection_that_a_follower_misses_is_filled_again(library: Library, follower: Follower):
    """The keeper looks around, though itself it has not missed anything."""
    memory_id = library.add(text=FACT)
    library.index.start()
    assert soon(lambda: found(follower, library) == [memory_id])
    library.index.collections.drop(collection_names.serving(library.project_id))

    found(follower, library)

    assert soon(lambda: found(follower, library) == [memory_id])


def test_a_rebuild_is_no_loss(library: Library, follower: Follower, monkeypatch: pytest.MonkeyPatch):
    """Another collection stands in the place of the one that the follower knew: nothing has to be looked through."""
    memory_id = library.add(text=FACT)
    library.index.start()
    assert soon(lambda: found(follower, library) == [memory_id])
    asked: list[str] = []
    monkeypatch.setattr(follower._keeper, "look_around_soon", lambda: asked.append("look"))

    library.index.repair.rebuild(library.project_id)

    assert found(follower, library) == [memory_id]
    assert asked == []


def test_an_answer_that_comes_too_late_is_not_taken_for_another():
    """Answers have the number of their question."""
    ours, theirs = Pipe()
    with ours, theirs:
        keeper = Keeper(theirs, patience_seconds=0.1)
        with pytest.raises(TimedOut):
            keeper.standing()
        number, verb, _ = ours.recv()
        ours.send((number, verb))
        ours.send((number + 1, "the second answer"))

        assert keeper.standing() == "the second answer"


def test_a_keeper_that_is_gone_is_an_outage():
    """And no error of a request."""
    ours, theirs = Pipe()
    ours.close()
    with theirs, pytest.raises(ConnectionLost):
        Keeper(theirs).standing()


def test_a_failure_at_the_keepers_does_not_end_the_line(keeper: Keeper):
    """The next question is answered."""
    with pytest.raises(ConnectionLost):
        keeper._ask("require", 1, 2, 3)

    assert keeper.standing().state == "connecting"
