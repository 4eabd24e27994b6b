"""Collections in Chroma: unit vectors with ids and flat metadata, never any text.

Requests use Chroma's own id of a collection, so one that was deleted or recreated by another program is detected
(CollectionGone) and looked up again.
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
_CONTENTS_PAGE_DOCUMENTS: Final = 200
_CREATE_RETRY_SECONDS: Final = 2.0
_HNSW: Final = {"space": "cosine", "max_neighbors": 32, "ef_construction": 200}
"""With Chroma's defaults, 16 and 100, some of many similar texts become unreachable in the graph: in 3 of 30
collections of 405 notes, one was not found by its own text; with these values, in none. Inserting takes no longer.
"""


@dataclass(frozen=True, slots=True)
class Model:
    """The model of a collection's vectors: only vectors of the same model are comparable."""

    model_id: str
    version: str
    dimensions: int

    @classmethod
    def of(cls, embedder: Embedder) -> "Model":
        """Return the model of an embedder; for an endpoint this may request the dimensions. Raises EmbedderFailed."""
        return cls(embedder.model_id, embedder.version, embedder.dimensions)

    @classmethod
    def read(cls, metadata: Mapping[str, Any] | None) -> "Model | None":
        """Return the model in a collection's metadata; None for a collection that another program created."""
        try:
            values = dict(metadata or {})
            return cls(str(values["model_id"]), str(values["model_version"]), int(values["dimensions"]))
        except (KeyError, TypeError, ValueError):
            return None

    def metadata(self) -> dict[str, str | int]:
        """Return the model as metadata of a collection."""
        return {"model_id": self.model_id, "model_version": self.version, "dimensions": self.dimensions}


@dataclass(frozen=True, slots=True)
class Collection:
    """A collection. `model` is None when another program created it."""

    id: str
    name: str
    model: Model | None


class ModelDiffers(ChromaRefused):
    """The collection has vectors of another model; comparisons of mixed vectors would be meaningless."""


@dataclass(frozen=True, slots=True)
class DocumentHit:
    """A document similar to a query, with its cosine similarity (-1 to 1), and its text hash if requested."""

    document_id: str
    cosine: float
    text_hash: object = None


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A document as another program stored it, with its text."""

    document_id: str
    text: str | None
    metadata: Metadata
    vector: Vectors


class Collections:
    """Operations on collections. They block, and raise VectorsUnavailable within their time limit."""

    def __init__(
        self,
        connection: Connection,
        *,
        on_created: Callable[[str], None] = lambda _: None,
        on_lost: Callable[[str], None] = lambda _: None,
        open_collections: int = 0,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        """`on_created` and `on_lost` are called with the name of a new or a vanished collection."""
        self._connection = connection
        self._on_created = on_created
        self._on_lost = on_lost
        self._open_collections = open_collections
        self._sleep = sleep
        self._cached: dict[str, Collection] = {}
        self._loaded_ids: set[str] = set()
        self._lock = threading.Lock()

    # ---- collections

    def connect(self) -> None:
        """Connect unless already connected. Raises VectorsUnavailable."""
        self._connection.limits()

    def find(self, name: str, *, fresh: bool = False) -> Collection | None:
        """Return the collection of that name if it exists; from the cache unless `fresh`."""
        cached = self._cached.get(name)
        if cached is not None and not fresh:
            return cached
        try:
            return self._cache(self._get(f"/collections/{quote(name, safe='')}"))
        except CollectionGone:
            self._cached.pop(name, None)
            return None

    def ensure(self, name: str, model: Model) -> Collection:
        """Return the collection of that name; create it for the model if it does not exist. Retried once, after 2 s.

        An existing collection may be of another model or program: see its `model`.
        """
        existing = self.find(name)
        if existing is not None:
            return existing
        try:
            return self._create(name, model)
        except ChromaRefused:
            self._sleep(_CREATE_RETRY_SECONDS)
            return self._create(name, model)

    def names(self) -> list[str]:
        """Return the names of all collections."""
        return [entry["name"] for entry in self._paged("/collections?limit={limit}&offset={offset}")]

    def drop(self, name: str) -> None:
        """Delete a collection and its documents, if it exists."""
        self._cached.pop(name, None)
        try:
            self._send("DELETE", f"/collections/{quote(name, safe='')}", seconds=WRITE_SECONDS)
        except CollectionGone:
            return

    def rename(self, name: str, new_name: str) -> None:
        """Rename a collection; its id does not change."""
        collection = self._cached.pop(name, None) or self._cache(self._get(f"/collections/{quote(name, safe='')}"))
        self._send("PUT", f"/collections/{collection.id}", {"new_name": new_name}, seconds=WRITE_SECONDS)
        self._cached[new_name] = Collection(collection.id, new_name, collection.model)

    # ---- documents

    def upsert(self, name: str, model: Model, documents: Sequence[Document], vectors: Vectors) -> None:
        """Store documents in batches within the server's limit; on return Chroma has confirmed all of them."""
        limits = self._connection.limits()
        chunk = min(_UPSERT_DOCUMENTS, limits.max_batch_size)
        for start in range(0, len(documents), chunk):
            part = documents[start : start + chunk]
            body = {
                "ids": [document.id for document in part],
                "embeddings": _encode(vectors[start : start + chunk], as_base64=limits.supports_base64_encoding),
                "metadatas": [document.metadata for document in part],
            }
            self._write(name, model, "upsert", body)

    def delete(self, name: str, document_ids: Sequence[str]) -> None:
        """Delete documents; ignores unknown ids and a missing collection."""
        chunk = self._connection.limits().max_batch_size
        for start in range(0, len(document_ids), chunk):
            self._read(name, "delete", {"ids": list(document_ids[start : start + chunk])}, seconds=WRITE_SECONDS)

    def update_metadata(self, name: str, documents: Sequence[Document]) -> None:
        """Replace the metadata of stored documents and keep their vectors."""
        chunk = self._connection.limits().max_batch_size
        for start in range(0, len(documents), chunk):
            part = documents[start : start + chunk]
            body = {
                "ids": [document.id for document in part],
                "metadatas": [document.metadata for document in part],
            }
            self._read(name, "update", body, seconds=WRITE_SECONDS)

    def metadata(self, name: str, memory_ids: Sequence[str], *, seconds: float = WRITE_SECONDS) -> dict[str, Metadata]:
        """Return the metadata of all documents of these memories, by document id."""
        body = {"where": {"memory_item_id": {"$in": list(memory_ids)}}, "include": ["metadatas"]}
        return _metadata(self._read(name, "get", body, seconds=WRITE_SECONDS) if memory_ids else None)

    def vectors(self, name: str, memory_ids: Sequence[str]) -> dict[str, tuple[Vectors, object]]:
        """Return vector and text hash of all documents of these memories, by document id."""
        body = {"where": {"memory_item_id": {"$in": list(memory_ids)}}, "include": ["embeddings", "metadatas"]}
        reply = self._read(name, "get", body) if memory_ids else None
        if reply is None:
            return {}
        vectors = np.asarray(reply["embeddings"], dtype=np.float32)
        return dict(zip(reply["ids"], zip(vectors, map(_text_hash, reply["metadatas"]), strict=True), strict=True))

    def pages(self, name: str) -> Iterator[dict[str, Metadata]]:
        """Yield the metadata of a whole collection by document id, page by page; nothing if it does not exist."""
        offset = 0
        while True:
            body = {"limit": PAGE_DOCUMENTS, "offset": offset, "include": ["metadatas"]}
            page = _metadata(self._read(name, "get", body, seconds=WRITE_SECONDS))
            if page:
                yield page
            if len(page) < PAGE_DOCUMENTS:
                return
            offset += PAGE_DOCUMENTS

    def contents(self, name: str) -> Iterator[list[StoredDocument]]:
        """Yield all of a collection's content page by page: only for collections that another program filled."""
        offset = 0
        include = ["embeddings", "documents", "metadatas"]
        while True:
            body = {"limit": _CONTENTS_PAGE_DOCUMENTS, "offset": offset, "include": include}
            reply = self._read(name, "get", body, seconds=WRITE_SECONDS)
            if reply is None or not reply["ids"]:
                return
            vectors = np.asarray(reply["embeddings"], dtype=np.float32)
            rows = zip(reply["ids"], reply["documents"], reply["metadatas"], vectors, strict=True)
            yield [
                StoredDocument(document_id, text, metadata or {}, vector)
                for document_id, text, metadata, vector in rows
            ]
            offset += len(vectors)

    def count(self, name: str) -> int:
        """Return how many documents a collection has; 0 if it does not exist."""
        return int(self._read(name, "count") or 0)

    def query(
        self, name: str, vector: Vectors, *, limit: int, hashed: bool = False, seconds: float = READ_SECONDS
    ) -> list[DocumentHit]:
        """Return the most similar documents, best first; none if the collection is missing. `hashed` adds text hashes.

        There is no `where`: with one, a query takes 73 ms at 20,000 documents instead of 2. SQL filters by the ids.
        """
        include = ["distances", "metadatas"] if hashed else ["distances"]
        body = {"query_embeddings": [vector.tolist()], "n_results": limit, "include": include}
        reply = self._read(name, "query", body, seconds=seconds)
        if reply is None:
            return []
        ids = reply["ids"][0]
        hashes = map(_text_hash, reply["metadatas"][0]) if hashed else [None] * len(ids)
        rows = zip(ids, reply["distances"][0], hashes, strict=True)
        return [DocumentHit(document_id, 1.0 - distance, text_hash) for document_id, distance, text_hash in rows]

    # ---- plumbing

    def _create(self, name: str, model: Model) -> Collection:
        body = {
            "name": name,
            "get_or_create": True,
            "metadata": model.metadata(),
            "configuration": {"hnsw": _HNSW},
        }
        collection = self._cache(self._send("POST", "/collections", body, seconds=WRITE_SECONDS))
        self._on_created(name)
        return collection

    def _get(self, path: str) -> Any:
        return self._send("GET", path, seconds=READ_SECONDS)

    def _cache(self, reply: Any) -> Collection:
        collection = Collection(reply["id"], reply["name"], Model.read(reply["metadata"]))
        self._cached[collection.name] = collection
        return collection

    def _read(self, name: str, verb: str, body: Any = None, *, seconds: float = READ_SECONDS) -> Any | None:
        """Send a request about an existing collection; None when it does not exist."""
        for fresh in (False, True):
            collection = self.find(name, fresh=fresh)
            if collection is None:
                return None
            try:
                return self._call(collection, verb, body, seconds)
            except CollectionGone:
                self._forget(collection)
        return None

    def _write(self, name: str, model: Model, verb: str, body: Any) -> None:
        """Change a collection, creating it if it does not exist. Raises ModelDiffers for one of another model."""
        collection = self.ensure(name, model)
        try:
            self._change(collection, model, verb, body)
        except CollectionGone:
            self._forget(collection)
            self._change(self.ensure(name, model), model, verb, body)

    def _change(self, collection: Collection, model: Model, verb: str, body: Any) -> None:
        if collection.model != model:
            raise ModelDiffers(f"The collection {collection.name} has vectors of another model.")
        self._call(collection, verb, body, WRITE_SECONDS)

    def _call(self, collection: Collection, verb: str, body: Any, seconds: float) -> Any:
        if _loads_vectors(verb, body):
            self._count_loaded(collection)
        method = "GET" if body is None else "POST"
        return self._send(method, f"/collections/{collection.id}/{verb}", body, seconds=seconds)

    def _send(self, method: str, path: str, body: Any = None, *, seconds: float) -> Any:
        return self._connection.send(method, path, body=body, timeout_seconds=seconds)

    def _forget(self, collection: Collection) -> None:
        if self._cached.get(collection.name) == collection:
            self._cached.pop(collection.name, None)
            self._on_lost(collection.name)

    def _count_loaded(self, collection: Collection) -> None:
        """Count the collections that our own server has loaded; restart it beyond the limit, to free their memory.

        Chroma 1.5.9 can unload idle collections on its own, but then fails to read documents not yet written to disk.
        """
        if not self._open_collections or collection.id in self._loaded_ids:
            return
        with self._lock:
            if len(self._loaded_ids) >= self._open_collections:
                self._loaded_ids.clear()
                self._connection.renew()
            self._loaded_ids.add(collection.id)

    def _paged(self, path: str) -> Iterator[Any]:
        offset = 0
        while True:
            page = self._get(path.format(limit=PAGE_COLLECTIONS, offset=offset))
            yield from page
            if len(page) < PAGE_COLLECTIONS:
                return
            offset += len(page)


def _loads_vectors(verb: str, body: Any) -> bool:
    """Return whether a call makes Chroma load the collection's vectors; counts and metadata come from its SQLite."""
    return verb != "count" and body.get("include") != ["metadatas"]


def _text_hash(metadata: Metadata | None) -> object:
    return (metadata or {}).get("text_hash")


def _metadata(reply: Any | None) -> dict[str, Metadata]:
    if reply is None:
        return {}
    return {document_id: metadata or {} for document_id, metadata in zip(reply["ids"], reply["metadatas"], strict=True)}


def _encode(vectors: Vectors, *, as_base64: bool) -> list[Any]:
    rows = np.ascontiguousarray(vectors, dtype="<f4")
    return [base64.b64encode(row.tobytes()).decode() for row in rows] if as_base64 else rows.tolist()
