"""Collections in a real Chroma server."""

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from app.vectors import embedding
from app.vectors.chroma.collections import Collections, Model, ModelDiffers
from app.vectors.chroma.connection import Connection
from app.vectors.chroma.server import ChildServer, RemoteServer
from app.vectors.errors import VectorsUnavailable
from tests.chroma_server import running
from tests.vectors.conftest import MODEL, make_documents, make_vectors

NAME = "cm__0192f0c0-0000-7000-8000-00000000000a"


def fill(collections: Collections, count: int = 10, *, name: str = NAME) -> None:
    collections.upsert(name, MODEL, make_documents(count), make_vectors(count))


def stored(collections: Collections, name: str = NAME) -> dict[str, str]:
    return {document: metadata["text_hash"] for page in collections.pages(name) for document, metadata in page.items()}


def test_most_similar_document_comes_first(collections: Collections):
    """The cosine of a vector with itself is 1."""
    fill(collections)
    best, second = collections.query(NAME, make_vectors(10)[3], limit=2)
    assert best.document_id == "mem_m3_text"
    assert best.cosine == pytest.approx(1, abs=1e-5)
    assert second.cosine < best.cosine


def test_cosine_is_that_of_the_vectors(collections: Collections):
    """Chroma's distance is 1 minus the cosine."""
    fill(collections)
    vectors = make_vectors(10)
    hits = collections.query(NAME, vectors[0], limit=10)
    expected = {f"mem_m{n}_text": float(cosine) for n, cosine in enumerate(vectors @ vectors[0])}
    assert {hit.document_id: hit.cosine for hit in hits} == pytest.approx(expected, abs=1e-5)


def test_each_of_many_similar_documents_is_found_by_its_own_vector(collections: Collections):
    """With too few edges in the graph some are unreachable; with Chroma's default, one of these."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=128) + 0.1 * rng.normal(size=(400, 128))
    rows[::80] = rng.normal(size=(5, 128))
    vectors = embedding.unit(rows.astype(np.float32))
    documents = make_documents(400)
    collections.upsert(NAME, replace(MODEL, dimensions=128), documents, vectors)
    unreachable = [
        document.id
        for document, vector in zip(documents, vectors, strict=True)
        if document.id not in {hit.document_id for hit in collections.query(NAME, vector, limit=20)}
    ]
    assert unreachable == []


def test_upsert_replaces_vector_and_hash(collections: Collections):
    """The old vector does not remain next to the new one."""
    fill(collections)
    changed = make_documents(10, text="changed")
    collections.upsert(NAME, MODEL, changed, make_vectors(10, seed=1))
    assert stored(collections) == {document.id: document.text_hash for document in changed}
    vector = collections.vectors(NAME, ["m4"])["mem_m4_text"][0]
    assert np.allclose(vector, make_vectors(10, seed=1)[4], atol=1e-6)


def test_more_documents_than_the_batch_limit_are_stored_in_batches(collections: Collections):
    """The limit comes from the server."""
    count = collections._connection.limits().max_batch_size + 1
    fill(collections, count)
    assert collections.count(NAME) == count
    assert len(stored(collections)) == count


def test_documents_are_found_and_deleted_by_memory(collections: Collections):
    """Unknown ids are ignored."""
    fill(collections)
    metadata = collections.metadata(NAME, ["m1", "m2", "unknown"])
    assert sorted(metadata) == ["mem_m1_text", "mem_m2_text"]
    collections.delete(NAME, [*metadata, "mem_unknown_text"])
    assert collections.metadata(NAME, ["m1", "m2"]) == {}
    assert collections.count(NAME) == 8


def test_updating_metadata_keeps_the_vectors(collections: Collections):
    """A memory with a new type is not embedded again."""
    fill(collections)
    document = make_documents(1)[0]
    collections.update_metadata(NAME, [replace(document, metadata={**document.metadata, "type": "other"})])
    assert collections.metadata(NAME, ["m0"])["mem_m0_text"]["type"] == "other"
    assert np.allclose(collections.vectors(NAME, ["m0"])["mem_m0_text"][0], make_vectors(10)[0], atol=1e-6)


def test_reading_does_not_create_a_missing_collection(collections: Collections):
    """A search in a project without memories changes nothing."""
    assert collections.query(NAME, make_vectors(1)[0], limit=5) == []
    assert (collections.count(NAME), stored(collections), collections.vectors(NAME, ["m1"])) == (0, {}, {})
    assert collections.names() == []


def test_creating_a_collection_twice_yields_one_collection(collections: Collections, connection: Connection):
    """A second process finds that of the first one."""
    other = Collections(connection)
    assert collections.ensure(NAME, MODEL).id == other.ensure(NAME, MODEL).id


def test_write_recreates_a_collection_deleted_by_another_process(collections, connection, notified):
    """The write succeeds, and the callbacks allow to refill the rest."""
    fill(collections)
    notified.clear()
    Collections(connection).drop(NAME)
    fill(collections, 3)
    assert collections.count(NAME) == 3
    assert notified == [("lost", NAME), ("created", NAME)]


def test_query_detects_a_collection_deleted_by_another_process(collections, connection, notified):
    """The result is empty, not an error, and the callback is called."""
    fill(collections)
    notified.clear()
    Collections(connection).drop(NAME)
    assert collections.query(NAME, make_vectors(1)[0], limit=5) == []
    assert notified == [("lost", NAME)]


def test_collection_recreated_by_another_process_is_found_by_its_new_id(collections, connection, notified):
    """The cached id does not hide what the other process wrote."""
    fill(collections)
    notified.clear()
    other = Collections(connection)
    other.drop(NAME)
    fill(other, 2)
    assert collections.count(NAME) == 2
    assert notified == [("lost", NAME)]


def test_dropping_a_collection_twice_is_safe(collections: Collections):
    """The deletion of a project may be repeated."""
    fill(collections)
    collections.drop(NAME)
    collections.drop(NAME)
    assert collections.names() == []


def test_renamed_collection_keeps_its_documents(collections: Collections):
    """A rebuild replaces the old collection this way."""
    fill(collections, name=NAME + "__next")
    collections.rename(NAME + "__next", NAME)
    assert collections.count(NAME) == 10
    assert collections.names() == [NAME]


@pytest.mark.parametrize("other", [replace(MODEL, version="2"), replace(MODEL, dimensions=16), Model("other", "1", 8)])
def test_vectors_of_different_models_are_never_mixed(collections: Collections, other: Model):
    """Another model needs another collection."""
    fill(collections)
    with pytest.raises(ModelDiffers):
        collections.upsert(NAME, other, make_documents(1), make_vectors(1, dimensions=other.dimensions))
    assert collections.find(NAME).model == MODEL


def test_collection_of_another_program_is_recognised(collections: Collections, connection: Connection):
    """It does not have our metadata."""
    connection.send("POST", "/collections", body={"name": NAME}, timeout_seconds=5)
    assert collections.find(NAME).model is None
    with pytest.raises(ModelDiffers):
        fill(collections)


def test_stored_documents_survive_a_killed_server(collections: Collections, server: ChildServer):
    """A confirmed upsert survives kill -9 of the child."""
    fill(collections, 50)
    server._child.kill()
    server._child.wait()
    assert collections.query(NAME, make_vectors(50)[7], limit=1)[0].document_id == "mem_m7_text"
    assert collections.count(NAME) == 50


def test_server_restarts_when_too_many_collections_are_loaded(connection: Connection, server: ChildServer):
    """The restart frees their memory; nothing is lost, and no call fails."""
    bounded = Collections(connection, open_collections=3)
    names = [f"cm__{n}" for n in range(8)]
    for name in names:
        fill(bounded, 4, name=name)
    first_child = server.pid
    ids = [bounded.query(name, make_vectors(4)[2], limit=1)[0].document_id for name in names * 2]
    assert ids == ["mem_m2_text"] * 16
    assert server.pid != first_child


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    """A separate Chroma server, as an operator would run it."""
    with running(tmp_path / "remote") as url:
        yield url


def test_separate_chroma_server_works_the_same(remote: str):
    """The same calls work over the network."""
    connection = Connection(RemoteServer(remote), backoff_seconds=0.05)
    wait_for(connection)
    collections = Collections(connection)
    fill(collections)
    assert collections.query(NAME, make_vectors(10)[3], limit=1)[0].document_id == "mem_m3_text"
    connection.close()


def wait_for(connection: Connection) -> None:
    """Wait until a server that has just been started responds."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            connection.limits()
        except VectorsUnavailable:
            time.sleep(0.05)
        else:
            return
