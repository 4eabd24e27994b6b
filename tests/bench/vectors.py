"""The vector mirror: its throughput, its cost to the server meanwhile, and the speed of semantic search."""

import hashlib
import re
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import httpx
import numpy as np

from app.services.memories import memories
from app.vectors import collection_names, embedding
from app.vectors.documents import Document, hash_of
from app.vectors.embedding import Vectors
from app.vectors.embedding.background import BackgroundEmbedder
from app.vectors.embedding.minilm import MiniLM
from app.vectors.index import VectorIndex, VectorIndexConfig
from tests.bench import api, load, texts
from tests.bench.harness import Row, Running, Store, prepared, serving

_THREADS = 2
_WORDS = 150
_TIMEOUT_SECONDS = 600.0


class RandomEmbedder:
    """Random vectors of the default model's size, to fill large collections without its cost."""

    model_id, version, dimensions = MiniLM.model_id, MiniLM.version, MiniLM.dimensions
    is_remote = False

    def embed(self, texts: Sequence[str]) -> Vectors:
        seeds = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") for text in texts]
        rows = [np.random.default_rng(seed).normal(size=self.dimensions).astype(np.float32) for seed in seeds]
        return embedding.unit(np.stack(rows)) if rows else np.zeros((0, self.dimensions), dtype=np.float32)

    def embed_query(self, text: str) -> Vectors:
        vector: Vectors = self.embed([text])[0]
        return vector

    def supports_script(self, script: str) -> bool:
        return True


def run(scale: float) -> list[Row]:
    """Measure at `scale`; the targets are stated for 1.0."""
    with tempfile.TemporaryDirectory() as folder:
        return [
            *_following(Path(folder) / "following", scale),
            *_during_requests(Path(folder) / "during", scale),
            *_searching(Path(folder) / "searching", scale),
            _syncing_again(Path(folder) / "again", scale),
            _many_projects(Path(folder) / "projects", scale),
        ]


def index_of(store: Store, embedder: object) -> VectorIndex:
    """Return the store's index for use in this process."""
    config = VectorIndexConfig(
        mode="embedded", folder=store.folder / "chroma", url="", embedder=embedder, threads=_THREADS
    )  # type: ignore[arg-type]
    return VectorIndex(store.database, config)


def long_memories(store: Store, rows: int) -> list[str]:
    """Store memories of about 150 words; return their texts."""
    words = " ".join(
        " ".join(str(value) for value in item.values())
        for _, item in zip(range(2_000), texts.memories(2_000), strict=False)
    ).split()
    written = [" ".join(words[(n * 37) % 1_000 :][:_WORDS]) + f" number {n}" for n in range(rows)]
    with store.database.write() as connection:
        for text in written:
            new = memories.NewMemory(project_id=store.project_id, kind="manual", type="manual", narrative=text)
            memories.insert_once(connection, store.caller, new)
    return written


def _following(folder: Path, scale: float) -> list[Row]:
    folder.mkdir()
    store = prepared(folder)
    rows = max(48, int(5_000 * scale))
    written = long_memories(store, rows)
    alone = BackgroundEmbedder(MiniLM(threads=1), threads=_THREADS)
    alone.embed(written[:8])
    floor = _rate(lambda: alone.embed(written[: max(48, rows // 5)]), max(48, rows // 5))
    alone.close()
    index = index_of(store, MiniLM(threads=1))
    index.collections.connect()
    measured = _rate(lambda: index.mirror.drain(), rows)
    index.close()
    with serving(folder, CMEM_VECTORS="embedded") as server:
        _settled(server, store)
        waits = sorted(_wait_for_one(server, store, n) for n in range(max(5, int(40 * scale))))
    p95 = waits[int(len(waits) * 0.95)]
    return [
        Row(
            f"mirror, {rows:,} memories of 150 words",
            f"{measured:.1f}/s",
            f"embedder {floor:.1f}/s",
            measured / floor,
            "≥ 0.8",
        ),
        Row("write acknowledged to in the index, p95", f"{p95:.2f} s", "1.5 s", p95 / 1.5, "≤ 1"),
    ]


def _during_requests(folder: Path, scale: float) -> list[Row]:
    folder.mkdir()
    store = prepared(folder)
    long_memories(store, max(200, int(3_000 * scale)))
    requests = max(200, int(8_000 * scale))
    gets = [load.request("GET", f"/v1/memories/{each}", key=store.api_key) for each in api.some_ids(store, 200)]
    rates: dict[str, tuple[load.Load, load.Load]] = {}
    for mode, seed in (("off", 11), ("embedded", 12)):
        with serving(folder, CMEM_VECTORS=mode) as server:
            load.run(server.url, gets, count=200)
            if mode == "embedded":
                _until(lambda: _status(server, store)["state"] == "ready")
            read = load.run(server.url, gets, count=requests)
            written = load.run(server.url, api.posts(store, requests // 4, seed=seed), count=requests // 4)
            rates[mode] = read, written
            if mode == "embedded":
                assert _status(server, store)["projects"][0]["pending"] > 0, "the mirror finished too early"
    rows = []
    for what, index in (("GET", 0), ("POST", 1)):
        off, on = rates["off"][index], rates["embedded"][index]
        rows.append(
            Row(
                f"{what} while the mirror catches up",
                f"{on.per_second:,.0f}/s",
                f"off {off.per_second:,.0f}/s",
                on.per_second / off.per_second,
                "≥ 0.7",
            )
        )
        more = on.percentile_ms(0.99) - off.percentile_ms(0.99)
        rows.append(Row("  p99 more than with vectors off", f"{more:.1f} ms", "50 ms", more / 50, "≤ 1"))
    return rows


def _searching(folder: Path, scale: float) -> list[Row]:
    store = api.filled(folder, max(200, int(20_000 * scale)))
    filling = index_of(store, RandomEmbedder())
    filling.mirror.drain()
    documents = filling.collections.count(collection_names.live(store.project_id))
    filling.close()
    index = index_of(store, MiniLM(threads=1))
    queries = [f"{query} {number}" for number, query in zip(range(300), _forever(texts.queries()), strict=False)]
    collection = index.collections.find(collection_names.live(store.project_id))
    assert collection is not None
    index.semantic_search.candidates([store.project_id], "warm up", limit=20)
    bare = _milliseconds(lambda query: _bare_query(index, collection.id, query), [f"{query} ?" for query in queries])
    ours = _milliseconds(lambda query: index.semantic_search.candidates([store.project_id], query, limit=20), queries)
    index.close()
    with serving(store.folder, CMEM_VECTORS="embedded") as server:
        _settled(server, store)
        for query in queries[:50]:
            body = {"projectId": store.project_id, "query": query}
            httpx.post(f"{server.url}/v1/search", json=body, headers=_headers(store), timeout=30)
        httpx.get(f"{server.url}/v1/vectors/status?deep=1", headers=_headers(store), timeout=30)
        resident = server.memory_mib() + _children_mib(server)
    return [
        Row(
            f"semantic search, {documents:,} documents, p50",
            f"{ours:.1f} ms",
            f"bare {bare:.1f} ms",
            ours / bare,
            "≤ 1.5",
        ),
        Row("memory of server and Chroma with them", f"{resident:.0f} MiB", "700 MiB", resident / 700, "≤ 1"),
    ]


def _syncing_again(folder: Path, scale: float) -> Row:
    store = api.filled(folder, max(50, int(1_000 * scale)))
    index = index_of(store, RandomEmbedder())
    index.mirror.drain()
    before = _size(store.folder / "chroma")
    for _ in range(50):
        index.mirror.enqueue_project(store.project_id)
        index.mirror.drain()
    after = _size(store.folder / "chroma")
    index.close()
    return Row(
        "folder after 50 syncs of unchanged memories",
        f"{after >> 20} MiB",
        f"{before >> 20} MiB",
        after / before,
        "≤ 1.2",
    )


def _many_projects(folder: Path, scale: float) -> Row:
    folder.mkdir()
    store = prepared(folder)
    index = index_of(store, RandomEmbedder())
    projects = max(120, int(500 * scale))
    model = index.model
    for project in range(projects):
        rows = [
            Document(
                f"mem_{project}-{n}_text",
                "",
                hash_of(str(n)),
                {"memory_item_id": f"{project}-{n}", "text_hash": hash_of(str(n))},
            )
            for n in range(20)
        ]
        index.collections.upsert(
            collection_names.live(str(project)), model, rows, RandomEmbedder().embed([row.id for row in rows])
        )
    for turn in range(2 * projects):
        hits = index.collections.query(
            collection_names.live(str(turn % projects)), RandomEmbedder().embed_query(str(turn)), limit=5, seconds=10
        )
        assert len(hits) == 5
    resident = _resident_mib(index._connection._server.pid)  # type: ignore[attr-defined]
    index.close()
    return Row(
        f"Chroma with {projects} projects asked in turn", f"{resident:.0f} MiB", "400 MiB", resident / 400, "≤ 1"
    )


def _bare_query(index: VectorIndex, collection_id: str, query: str) -> None:
    body = {"query_embeddings": [index.embedder.embed_query(query).tolist()], "n_results": 60, "include": ["distances"]}
    index._connection.send("POST", f"/collections/{collection_id}/query", body=body, timeout_seconds=10)


def _forever(some: Sequence[str]) -> "list[str]":
    return list(some) * 100


def _milliseconds(call: Callable[[str], object], queries: Sequence[str]) -> float:
    taken = []
    for query in queries:
        started = time.perf_counter()
        call(query)
        taken.append(time.perf_counter() - started)
    return sorted(taken)[len(taken) // 2] * 1_000


def _rate(call: Callable[[], object], items: int) -> float:
    started = time.perf_counter()
    call()
    return items / (time.perf_counter() - started)


def _headers(store: Store) -> dict[str, str]:
    return {"Authorization": f"Bearer {store.api_key}"}


def _status(server: Running, store: Store) -> dict[str, object]:
    return httpx.get(f"{server.url}/v1/vectors/status", headers=_headers(store), timeout=30).json()


def _settled(server: Running, store: Store) -> None:
    _until(lambda: _status(server, store)["state"] == "ready" and _status(server, store)["projects"][0]["pending"] == 0)


def _wait_for_one(server: Running, store: Store, number: int) -> float:
    body = {"projectId": store.project_id, "content": f"A fresh memory number {number} of {time.time()}."}
    httpx.post(f"{server.url}/v1/memories", json=body, headers=_headers(store), timeout=30)
    started = time.perf_counter()
    _until(lambda: _status(server, store)["projects"][0]["pending"] == 0)
    return time.perf_counter() - started


def _until(condition: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + _TIMEOUT_SECONDS
    while not condition():
        assert time.monotonic() < give_up_at
        time.sleep(0.02)


def _children_mib(server: Running) -> float:
    tasks = Path(f"/proc/{server.process.pid}/task").glob("*/children")
    return sum(_resident_mib(int(child)) for task in tasks for child in task.read_text().split())


def _resident_mib(pid: int) -> float:
    found = re.search(r"VmRSS:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    return int(found.group(1)) / 1024 if found else float("nan")


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
