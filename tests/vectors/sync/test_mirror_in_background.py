"""The mirror in the background follows every write, and recovers from losses and outages."""

import shutil
import socket
import threading
import time
from collections.abc import Iterator

import pytest

from app.vectors import collection_names
from app.vectors.embedding.endpoint import EmbeddingEndpoint, EndpointEmbedder
from app.vectors.errors import EmbedderFailed, VectorsUnavailable
from tests.databases import Databases
from tests.vectors.library import Counting, Library, opened

TOKEN = {"title": "Access tokens", "narrative": "Expired access tokens are exchanged with the refresh token."}
BREAD = {"title": "Bakery", "narrative": "Sourdough bread is baked on Saturday mornings."}
ASK_TOKEN = "how do we renew credentials that ran out"


@pytest.fixture
def counting() -> Counting:
    return Counting()


@pytest.fixture
def library(databases: Databases, tmp_path, counting) -> Iterator[Library]:
    with opened(databases, tmp_path, counting) as made:
        yield made


def wait_until(condition, *, seconds: float = 20.0) -> None:
    deadline = time.monotonic() + seconds
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert met


def test_write_is_indexed_in_the_background(library: Library):
    """It is found within seconds."""
    library.index.start()
    wait_until(lambda: library.index.state == "ready")
    memory = library.add(**TOKEN)
    wait_until(lambda: safely(library.find, ASK_TOKEN) == [memory], seconds=5)


def test_deleted_folder_is_refilled_at_the_next_start(library: Library):
    """The index is a cache: losing it costs time only."""
    memory = library.add(**TOKEN)
    library.index.mirror.drain()
    library.index.close()
    shutil.rmtree(library.folder / "chroma")
    library.restart()
    library.index.start()
    wait_until(lambda: safely(library.find, ASK_TOKEN) == [memory])


def test_lost_index_reports_that_it_is_behind_until_refilled(library: Library, counting: Counting):
    """An empty result would look as if nothing were known."""
    memory = library.add(**TOKEN)
    library.index.mirror.drain()
    library.index.close()
    shutil.rmtree(library.folder / "chroma")
    held = threading.Event()
    counting.before = lambda _: held.wait(20)
    library.restart()
    library.index.start()
    reasons = set()
    wait_until(lambda: reasons.add(reason_of(library)) or "index_behind" in reasons)
    assert reasons <= {"chroma_not_initialized", "index_behind"}
    held.set()
    wait_until(lambda: safely(library.find, ASK_TOKEN) == [memory])


def reason_of(library: Library) -> str | None:
    try:
        library.find(ASK_TOKEN)
    except VectorsUnavailable as failure:
        return failure.reason
    return None


@pytest.fixture
def failing(library: Library, counting: Counting) -> Library:
    """A running index whose model has just failed."""

    def fail(_):
        raise EmbedderFailed("no model")

    counting.before = fail
    library.add(**TOKEN)
    library.index.start()
    wait_until(lambda: library.index.last_error == "no model")
    return library


def test_failing_model_is_reported_at_once(failing: Library):
    """Searches do not have to wait to find out."""
    assert failing.index.state == "unavailable"


def test_failing_model_takes_precedence_over_a_lagging_index(failing: Library):
    """A lagging index catches up by itself; a missing model needs attention."""
    assert reason_of(failing) == "embedder_error"


def test_hanging_endpoint_does_not_delay_shutdown(library: Library):
    """The server stops within its grace period."""
    with socket.create_server(("127.0.0.1", 0)) as hanging:
        address = EmbeddingEndpoint(f"http://127.0.0.1:{hanging.getsockname()[1]}", "model", "")
        library.restart(EndpointEmbedder(address))
        library.add(**TOKEN)
        library.index.start()
        hanging.settimeout(20)
        accepted, _ = hanging.accept()
        began = time.monotonic()
        with accepted:
            library.index.close(grace_seconds=0.5)
        assert time.monotonic() - began < 3


def test_folder_deleted_under_a_running_server_is_refilled(library: Library):
    """No restart is needed."""
    memory = library.add(**TOKEN)
    library.index.start()
    wait_until(lambda: library.outbox() == [])
    shutil.rmtree(library.folder / "chroma")
    library.add(**BREAD)
    wait_until(lambda: (library.folder / "chroma" / "chroma.sqlite3").exists() and library.outbox() == [])
    wait_until(lambda: safely(library.find, ASK_TOKEN) == [memory])


def safely(call, *arguments):
    try:
        return call(*arguments)
    except VectorsUnavailable:
        return None


def test_foreign_collection_is_replaced_and_filled(library: Library):
    """A collection of that name that is not ours cannot be used."""
    memory = library.add(**TOKEN)
    library.index.mirror.drain()
    name = collection_names.live(library.project_id)
    library.index.collections.drop(name)
    library.index._connection.send("POST", "/collections", body={"name": name}, timeout_seconds=5)
    library.restart()
    library.index.start()
    wait_until(lambda: safely(library.find, ASK_TOKEN) == [memory])


def test_live_collection_answers_while_the_model_changes(library: Library, counting: Counting):
    """Each search uses the model of its collection, never a mix."""
    memory = library.add(**TOKEN)
    library.index.mirror.drain()
    successor, held = Counting("successor"), threading.Event()
    successor.before = lambda texts: texts == ["A plain text."] or held.wait(20)
    library.restart(successor, earlier=[counting])
    library.index.start()
    wait_until(lambda: library.index.state == "ready")
    assert library.find(ASK_TOKEN) == [memory]
    held.set()
    wait_until(lambda: model_of(library) == "successor")
    wait_until(lambda: safely(library.find, ASK_TOKEN) == [memory])
    wait_until(lambda: library.index.collections.names() == [collection_names.live(library.project_id)])


def model_of(library: Library) -> str | None:
    found = library.index.collections.find(collection_names.live(library.project_id), fresh=True)
    return found.model.model_id if found and found.model else None


def test_edit_during_a_model_change_is_never_found_by_its_old_text(library: Library, counting: Counting):
    """The live collection drops the old text at once; the new one gets the new text."""
    memory = library.add(**TOKEN)
    library.index.mirror.drain()
    successor, held = Counting("successor"), threading.Event()
    successor.before = lambda texts: texts == ["A plain text."] or held.wait(20)
    library.restart(successor, earlier=[counting])
    library.index.start()
    wait_until(lambda: library.index.state == "ready")
    library.change(memory, title="Bakery", narrative=BREAD["narrative"])
    wait_until(lambda: safely(library.find, ASK_TOKEN) == [])
    held.set()
    wait_until(lambda: model_of(library) == "successor")
    wait_until(lambda: safely(library.find, "bread on a weekend morning") == [memory])


def test_stopping_leaves_unfinished_work_pending(library: Library, counting: Counting):
    """Nothing is acknowledged that Chroma has not confirmed."""
    started, held = threading.Event(), threading.Event()

    def hold(_):
        started.set()
        held.wait(20)

    counting.before = hold
    library.add(**TOKEN)
    library.index.start()
    assert started.wait(20)
    began = time.monotonic()
    closing = threading.Thread(target=library.index.close, kwargs={"grace_seconds": 0.2})
    closing.start()
    time.sleep(0.3)
    held.set()
    closing.join(10)
    assert time.monotonic() - began < 10
    assert len(library.outbox()) == 1


def test_second_server_on_the_folder_runs_without_vectors(library: Library):
    """It reports why, and never touches the files of the first."""
    library.index.start()
    wait_until(lambda: library.index.state == "ready")
    second = library.another_index()
    second.start()
    wait_until(lambda: second.state == "unavailable")
    assert "belongs to process" in second.last_error
    second.close()
    assert library.index.state == "ready"
