"""What is kept in Chroma: collections of unit vectors under ids, with flat metadata and never a text.

Handles are addressed by Chroma's own id of a collection, so one that was deleted or made again behind our back is
noticed (CollectionGone) and found anew.
"""

import base64
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

import numpy as np

from app.vectors.chroma.connection import CollectionGone, Connection
from app.vectors.documents import Document, Metadata
from app.vectors.embedding import Embedder, Vectors
from app.vectors.errors import ChromaRefused

READ_SECONDS: Final = 2.0
WRITE_SECONDS: Final = 30.0
PAGE_DOCUMENTS: Final = 2_000
PAGE_COLLECTIONS: Final = 500
_UPSERT_DOCUMENTS: Final = 250
_CONTENTS: Final = 200
_SET_UP_PAUSE_SECONDS: Final = 2.0
_GRAPH: Final = {"space": "cosine", "max_neighbors": 32, "ef_construction": 200}
"""With Chroma's own 16 and 100 the graph leaves some of many alike texts without a way to them: in 3 of 30 collections
of 405 notes one was not found by its own text, with these in none. Filling takes no longer.
"""


@dataclass(frozen=True, slots=True)
class Model:
    """Whose vectors a collection holds: only vectors of one model may be compared."""

    model_id: str
    version: str
    dimensions: int

    @classmethod
    def of(cls, embedder: Embedder) -> "Model":
        """Return the model of an embedder; an endpoint may have to be asked for its dimensions."""
        return cls(embedder.model_id, embedder.version, embedder.dimensions)

    @classmethod
    def read(cls, metadata: Mapping[str, Any] | None) -> "Model | None":
        """Return the model that a collection's metadata names; None for a collection that is not ours."""
        try:
            values = dict(metadata or {})
            return cls(str(values["model_id"]), str(values["model_version"]), int(values["dimensions"]))
        except (KeyError, TypeError, ValueError):
            return None

    def metadata(self) -> dict[str, str | int]:
        """Return what a collection's metadata says of the model."""
        return {"model_id": self.model_id, "model_version": self.version, "dimensions": self.dimensions}


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection as it was found. `model` is None when somebody else made it."""

    id: str
    name: str
    model: Model | None


class ModelDiffers(ChromaRefused):
    """The collection's vectors are of another model: mixing them would make every comparison meaningless."""


@dataclass(frozen=True, slots=True)
class Hit:
    """A document near a query, with its cosine similarity (-1 to 1); its text's hash when that was asked for."""

    document_id: str
    cosine: float
    text_hash: object = None


@dataclass(frozen=True, slots=True)
class Content:
    """A document as another program stored it, with its text."""

    document_id: str
    text: str | None
    metadata: Metadata
    vector: Vectors


class Collections:
    """The verbs on collections. Blocking; raise VectorsUnavailable within their time limit."""

    def __init__(
        self,
        connection: Connection,
        *,
        on_made: Callable[[str], None] = lambda _: None,
        on_gone: Callable[[str], None] = lambda _: None,
        open_collections: int = 0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`on_made` and `on_gone` hear the name of a collection that is new, or was there before and is not now."""
        self._connection = connection
        self._on_made = on_made
        self._on_gone = on_gone
        self._open_collections = open_collections
        self._sleep = sleep
        self._known: dict[str, Collection] = {}
        self._touched: set[str] = set()
        self._lock = threading.Lock()

    # ---- collections

    def connect(self) -> None:
        """Connect if nobody has; raise VectorsUnavailable when that fails."""
        self._connection.limits()

    def find(self, name: str, *, fresh: bool = False) -> Collection | None:
        """Return the collection of that name; from memory unless `fresh`."""
        known = self._known.get(name)
        if known is not None and not fresh:
            return known
        try:
            return self._remember(self._get(f"/collections/{quote(name, safe='')}"))
        except CollectionGone:
            self._known.pop(name, None)
            return None

    def ensure(self, name: str, model: Model) -> Collection:
        """Return the collection of that name and model, made if there is none. Idempotent; tried again after 2 s.

        One of another model or maker is returned as it is: its `model` says so.
        """
        found = self.find(name)
        if found is not None:
            return found
        try:
            return self._make(name, model)
        except ChromaRefused:
            self._sleep(_SET_UP_PAUSE_SECONDS)
            return self._make(name, model)

    def names(self) -> list[str]:
        """Return the names of all collections."""
        return [entry["name"] for entry in self._paged("/collections?limit={limit}&offset={offset}")]

    def drop(self, name: str) -> None:
        """Delete a collection with all it holds; one that is not there is fine."""
        self._known.pop(name, None)
        try:
            self._send("DELETE", f"/collections/{quote(name, safe='')}", seconds=WRITE_SECONDS)
        except CollectionGone:
            return

    def rename(self, name: str, new_name: str) -> None:
        """Give a collection another name; handles stay good."""
        collection = self._known.pop(name, None) or self._remember(self._get(f"/collections/{quote(name, safe='')}"))
        self._send("PUT", f"/collections/{collection.id}", {"new_name": new_name}, seconds=WRITE_SECONDS)
        self._known[new_name] = Collection(collection.id, new_name, collection.model)

    # ---- documents

    def upsert(self, name: str, model: Model, documents: Sequence[Document], vectors: Vectors) -> None:
        """Store documents in chunks under the server's limit; on return Chroma has confirmed every one."""
        limits = self._connection.limits()
        chunk = min(_UPSERT_DOCUMENTS, limits.max_batch_size)
        for start in range(0, len(documents), chunk):
            part = documents[start : start + chunk]
            body = {
                "ids": [document.id for document in part],
                "embeddings": _encoded(vectors[start : start + chunk], as_base64=limits.supports_base64_encoding),
                "metadatas": [document.metadata for document in part],
            }
            self._write(name, model, "upsert", body)

    def delete(self, name: str, document_ids: Sequence[str]) -> None:
        """Delete documents; unknown ids and a missing collection are fine."""
        chunk = self._connection.limits().max_batch_size
        for start in range(0, len(document_ids), chunk):
            self._read(name, "delete", {"ids": list(document_ids[start : start + chunk])}, seconds=WRITE_SECONDS)

    def redescribe(self, name: str, documents: Sequence[Document]) -> None:
        """Give stored documents other metadata; their vectors stay."""
        chunk = self._connection.limits().max_batch_size
        for start in range(0, len(documents), chunk):
            part = documents[start : start + chunk]
            body = {
                "ids": [document.id for document in part],
                "metadatas": [document.metadata for document in part],
            }
            self._read(name, "update", body, seconds=WRITE_SECONDS)

    def metadata(self, name: str, memory_ids: Sequence[str], *, seconds: float = WRITE_SECONDS) -> dict[str, Metadata]:
        """Return the metadata by document id, of every document of these memories."""
        body = {"where": {"memory_item_id": {"$in": list(memory_ids)}}, "include": ["metadatas"]}
        return _metadata(self._read(name, "get", body, seconds=WRITE_SECONDS) if memory_ids else None)

    def vectors(self, name: str, memory_ids: Sequence[str]) -> dict[str, tuple[Vectors, object]]:
        """Return vector and text hash by document id, of every document of these memories."""
        body = {"where": {"memory_item_id": {"$in": list(memory_ids)}}, "include": ["embeddings", "metadatas"]}
        answer = self._read(name, "get", body) if memory_ids else None
        if answer is None:
            return {}
        vectors = np.asarray(answer["embeddings"], dtype=np.float32)
        return dict(zip(answer["ids"], zip(vectors, map(_text_hash, answer["metadatas"]), strict=True), strict=True))

    def pages(self, name: str) -> Iterator[dict[str, Metadata]]:
        """Yield metadata by document id, page by page, of a whole collection; nothing for a missing one."""
        offset = 0
        while True:
            body = {"limit": PAGE_DOCUMENTS, "offset": offset, "include": ["metadatas"]}
            page = _metadata(self._read(name, "get", body, seconds=WRITE_SECONDS))
            if page:
                yield page
            if len(page) < PAGE_DOCUMENTS:
                return
            offset += PAGE_DOCUMENTS

    def contents(self, name: str) -> Iterator[list[Content]]:
        """Yield everything of a collection page by page: only to read those that somebody else filled."""
        offset = 0
        while True:
            body = {"limit": _CONTENTS, "offset": offset, "include": ["embeddings", "documents", "metadatas"]}
            answer = self._read(name, "get", body, seconds=WRITE_SECONDS)
            if answer is None or not answer["ids"]:
                return
            vectors = np.asarray(answer["embeddings"], dtype=np.float32)
            rows = zip(answer["ids"], answer["documents"], answer["metadatas"], vectors, strict=True)
            yield [Content(document_id, text, metadata or {}, vector) for document_id, text, metadata, vector in rows]
            offset += len(vectors)

    def count(self, name: str) -> int:
        """Return how many documents a collection holds; 0 for a missing one."""
        answer = self._read(name, "count")
        return int(answer or 0)

    def query(
        self, name: str, vector: Vectors, *, limit: int, hashed: bool = False, seconds: float = READ_SECONDS
    ) -> list[Hit]:
        """Return the nearest documents, best first; nothing for a missing collection. `hashed` adds text hashes.

        Without a `where`: that costs 73 ms at 20,000 documents against 2. Filters are SQL's, on the ids.
        """
        include = ["distances", "metadatas"] if hashed else ["distances"]
        body = {"query_embeddings": [vector.tolist()], "n_results": limit, "include": include}
        answer = self._read(name, "query", body, seconds=seconds)
        if answer is None:
            return []
        ids = answer["ids"][0]
        hashes = map(_text_hash, answer["metadatas"][0]) if hashed else [None] * len(ids)
        found = zip(ids, answer["distances"][0], hashes, strict=True)
        return [Hit(document_id, 1.0 - distance, text_hash) for document_id, distance, text_hash in found]

    # ---- plumbing

    def _make(self, name: str, model: Model) -> Collection:
        body = {
            "name": name,
            "get_or_create": True,
            "metadata": model.metadata(),
            "configuration": {"hnsw": _GRAPH},
        }
        made = self._remember(self._send("POST", "/collections", body, seconds=WRITE_SECONDS))
        self._on_made(name)
        return made

    def _get(self, path: str) -> Any:
        return self._send("GET", path, seconds=READ_SECONDS)

    def _remember(self, answer: Any) -> Collection:
        collection = Collection(answer["id"], answer["name"], Model.read(answer["metadata"]))
        self._known[collection.name] = collection
        return collection

    def _read(self, name: str, verb: str, body: Any = None, *, seconds: float = READ_SECONDS) -> Any | None:
        """Ask a collection something; None when there is no such collection."""
        for fresh in (False, True):
            collection = self.find(name, fresh=fresh)
            if collection is None:
                return None
            try:
                return self._ask(collection, verb, body, seconds)
            except CollectionGone:
                self._lost(collection)
        return None

    def _write(self, name: str, model: Model, verb: str, body: Any) -> None:
        """Change a collection, made if there is none; one of another model is not touched."""
        collection = self.ensure(name, model)
        try:
            self._change(collection, model, verb, body)
        except CollectionGone:
            self._lost(collection)
            self._change(self.ensure(name, model), model, verb, body)

    def _change(self, collection: Collection, model: Model, verb: str, body: Any) -> None:
        if collection.model != model:
            raise ModelDiffers(f"The collection {collection.name} holds vectors of another model.")
        self._ask(collection, verb, body, WRITE_SECONDS)

    def _ask(self, collection: Collection, verb: str, body: Any, seconds: float) -> Any:
        if _loads_vectors(verb, body):
            self._touch(collection)
        method = "GET" if body is None else "POST"
        return self._send(method, f"/collections/{collection.id}/{verb}", body, seconds=seconds)

    def _send(self, method: str, path: str, body: Any = None, *, seconds: float) -> Any:
        return self._connection.send(method, path, body=body, timeout_seconds=seconds)

    def _lost(self, collection: Collection) -> None:
        if self._known.get(collection.name) == collection:
            self._known.pop(collection.name, None)
            self._on_gone(collection.name)

    def _touch(self, collection: Collection) -> None:
        """Count what our own server has had to load; past the bound it starts afresh, and gives the memory back.

        Chroma 1.5.9 can drop idle collections by itself, but then fails to read what it had not yet written out.
        """
        if not self._open_collections or collection.id in self._touched:
            return
        with self._lock:
            if len(self._touched) >= self._open_collections:
                self._touched.clear()
                self._connection.renew()
            self._touched.add(collection.id)

    def _paged(self, path: str) -> Iterator[Any]:
        offset = 0
        while True:
            page = self._get(path.format(limit=PAGE_COLLECTIONS, offset=offset))
            yield from page
            if len(page) < PAGE_COLLECTIONS:
                return
            offset += len(page)


def _loads_vectors(verb: str, body: Any) -> bool:
    """Say whether a call makes Chroma load the collection's vectors; counts and metadata are read from its SQLite."""
    return verb != "count" and body.get("include") != ["metadatas"]


def _text_hash(metadata: Metadata | None) -> object:
    return (metadata or {}).get("text_hash")


def _metadata(answer: Any | None) -> dict[str, Metadata]:
    if answer is None:
        return {}
    return {document_id: kept or {} for document_id, kept in zip(answer["ids"], answer["metadatas"], strict=True)}


def _encoded(vectors: Vectors, *, as_base64: bool) -> list[Any]:
    rows = np.ascontiguousarray(vectors, dtype="<f4")
    return [base64.b64encode(row.tobytes()).decode() for row in rows] if as_base64 else rows.tolist()
