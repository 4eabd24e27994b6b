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
    return {document: kept["text_hash"] for page in collections.pages(name) for document, kept in page.items()}


def test_the_nearest_document_comes_first_with_its_cosine(collections: Collections):
    """The similarity of a vector to itself is one."""
    fill(collections)
    best, second = collections.query(NAME, make_vectors(10)[3], limit=2)
    assert best.document_id == "mem_m3_text"
    assert best.cosine == pytest.approx(1, abs=1e-5)
    assert second.cosine < best.cosine


def test_the_cosine_is_that_of_the_vectors(collections: Collections):
    """What Chroma calls a distance is one minus the cosine."""
    fill(collections)
    vectors = make_vectors(10)
    hits = collections.query(NAME, vectors[0], limit=10)
    expected = {f"mem_m{n}_text": float(cosine) for n, cosine in enumerate(vectors @ vectors[0])}
    assert {hit.document_id: hit.cosine for hit in hits} == pytest.approx(expected, abs=1e-5)


def test_each_of_many_alike_documents_is_found_by_its_own_vector(collections: Collections):
    """A graph of too few edges has no way to some of them; with Chroma's own number it loses one of these."""
    rng = np.random.default_rng(5)
    rows = rng.normal(size=128) + 0.1 * rng.normal(size=(400, 128))
    rows[::80] = rng.normal(size=(5, 128))
    vectors = embedding.unit(rows.astype(np.float32))
    documents = make_documents(400)
    collections.upsert(NAME, replace(MODEL, dimensions=128), documents, vectors)
    lost = [
        document.id
        for document, vector in zip(documents, vectors, strict=True)
        if document.id not in {hit.document_id for hit in collections.query(NAME, vector, limit=20)}
    ]
    assert lost == []


def test_an_upsert_replaces_vector_and_hash(collections: Collections):
    """The old vector is gone, not merely joined by another."""
    fill(collections)
    changed = make_documents(10, text="changed")
    collections.upsert(NAME, MODEL, changed, make_vectors(10, seed=1))
    assert stored(collections) == {document.id: document.text_hash for document in changed}
    kept = collections.vectors(NAME, ["m4"])["mem_m4_text"][0]
    assert np.allclose(kept, make_vectors(10, seed=1)[4], atol=1e-6)


def test_more_documents_than_a_batch_allows_are_stored_in_parts(collections: Collections):
    """The limit is the server's own, asked at run time."""
    count = collections._connection.limits().max_batch_size + 1
    fill(collections, count)
    assert collections.count(NAME) == count
    assert len(stored(collections)) == count


def test_documents_are_found_and_deleted_by_memory(collections: Collections):
    """Deleting what is not there is fine."""
    fill(collections)
    found = collections.metadata(NAME, ["m1", "m2", "unknown"])
    assert sorted(found) == ["mem_m1_text", "mem_m2_text"]
    collections.delete(NAME, [*found, "mem_unknown_text"])
    assert collections.metadata(NAME, ["m1", "m2"]) == {}
    assert collections.count(NAME) == 8


def test_other_metadata_leaves_the_vectors_as_they_are(collections: Collections):
    """A memory of another type is not embedded again."""
    fill(collections)
    document = make_documents(1)[0]
    collections.redescribe(NAME, [replace(document, metadata={**document.metadata, "type": "other"})])
    assert collections.metadata(NAME, ["m0"])["mem_m0_text"]["type"] == "other"
    assert np.allclose(collections.vectors(NAME, ["m0"])["mem_m0_text"][0], make_vectors(10)[0], atol=1e-6)


def test_a_missing_collection_is_empty_and_not_made_by_reading(collections: Collections):
    """A search in a project without memories touches nothing."""
    assert collections.query(NAME, make_vectors(1)[0], limit=5) == []
    assert (collections.count(NAME), stored(collections), collections.vectors(NAME, ["m1"])) == (0, {}, {})
    assert collections.names() == []


def test_making_a_collection_twice_is_one_collection(collections: Collections, connection: Connection):
    """A second worker finds the first one's."""
    other = Collections(connection)
    assert collections.ensure(NAME, MODEL).id == other.ensure(NAME, MODEL).id


def test_a_collection_deleted_behind_our_back_is_made_again_by_a_write(collections, connection, told):
    """The write lands, and somebody is told to fill the rest."""
    fill(collections)
    told.clear()
    Collections(connection).drop(NAME)
    fill(collections, 3)
    assert collections.count(NAME) == 3
    assert told == [("gone", NAME), ("made", NAME)]


def test_a_collection_deleted_behind_our_back_is_noticed_by_a_query(collections, connection, told):
    """The answer is empty, not an error, and somebody is told."""
    fill(collections)
    told.clear()
    Collections(connection).drop(NAME)
    assert collections.query(NAME, make_vectors(1)[0], limit=5) == []
    assert told == [("gone", NAME)]


def test_a_collection_made_again_behind_our_back_is_found_by_its_new_id(collections, connection, told):
    """A cached handle does not hide what the other process wrote."""
    fill(collections)
    told.clear()
    other = Collections(connection)
    other.drop(NAME)
    fill(other, 2)
    assert collections.count(NAME) == 2
    assert told == [("gone", NAME)]


def test_dropping_twice_is_fine(collections: Collections):
    """A deleted project may be deleted again."""
    fill(collections)
    collections.drop(NAME)
    collections.drop(NAME)
    assert collections.names() == []


def test_a_renamed_collection_keeps_what_it_holds(collections: Collections):
    """A rebuilt collection takes the place of the old one."""
    fill(collections, name=NAME + "__next")
    collections.rename(NAME + "__next", NAME)
    assert collections.count(NAME) == 10
    assert collections.names() == [NAME]


@pytest.mark.parametrize("other", [replace(MODEL, version="2"), replace(MODEL, dimensions=16), Model("other", "1", 8)])
def test_vectors_of_another_model_are_never_mixed_in(collections: Collections, other: Model):
    """A changed model means another collection."""
    fill(collections)
    with pytest.raises(ModelDiffers):
        collections.upsert(NAME, other, make_documents(1), make_vectors(1, dimensions=other.dimensions))
    assert collections.find(NAME).model == MODEL


def test_a_collection_of_somebody_else_is_recognised(collections: Collections, connection: Connection):
    """Without our metadata it is foreign."""
    connection.send("POST", "/collections", body={"name": NAME}, timeout_seconds=5)
    assert collections.find(NAME).model is None
    with pytest.raises(ModelDiffers):
        fill(collections)


def test_what_was_stored_is_there_after_the_server_was_killed(collections: Collections, server: ChildServer):
    """A confirmed upsert survives kill -9 of the child."""
    fill(collections, 50)
    server._child.kill()
    server._child.wait()
    assert collections.query(NAME, make_vectors(50)[7], limit=1)[0].document_id == "mem_m7_text"
    assert collections.count(NAME) == 50


def test_idle_collections_give_their_memory_back(connection: Connection, server: ChildServer):
    """Past the bound the child starts afresh, and nothing is lost or fails meanwhile."""
    bounded = Collections(connection, open_collections=3)
    names = [f"cm__{n}" for n in range(8)]
    for name in names:
        fill(bounded, 4, name=name)
    first_child = server.pid
    found = [bounded.query(name, make_vectors(4)[2], limit=1)[0].document_id for name in names * 2]
    assert found == ["mem_m2_text"] * 16
    assert server.pid != first_child


@pytest.fixture
def remote(tmp_path: Path) -> Iterator[str]:
    """A Chroma server as an operator would run it."""
    with running(tmp_path / "remote") as url:
        yield url


def test_a_chroma_server_of_the_operators_is_used_alike(remote: str):
    """The same calls work over the network."""
    connection = Connection(RemoteServer(remote), backoff_seconds=0.05)
    wait_for(connection)
    collections = Collections(connection)
    fill(collections)
    assert collections.query(NAME, make_vectors(10)[3], limit=1)[0].document_id == "mem_m3_text"
    connection.close()


def wait_for(connection: Connection) -> None:
    """Wait until a server that was just started answers."""
    deadline = time.monotonic() + 20
    while time.monotonic() < deadline:
        try:
            connection.limits()
        except VectorsUnavailable:
            time.sleep(0.05)
        else:
            return
