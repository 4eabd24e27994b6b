"""The cost of hybrid search over HTTP, in small and large projects, compared with the same search in one process."""

import itertools
import json
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from app.services.memories import memories
from app.services.search.engine import SearchEngine
from app.services.search.query import SearchParams
from app.store.fulltext import sqlite
from app.vectors import collection_names
from app.vectors.documents import Document, hash_of
from app.vectors.embedding.minilm import MiniLM
from tests.bench import api, load, texts, vectors
from tests.bench.harness import Row, Running, Store, prepared, serving

_BATCH = 500
_CONNECTIONS = 16
_CROWD = 100
_RARE_WORDS_FROM = 400


@dataclass(frozen=True)
class _Measured:
    """All timings; `floor` is in searches per second."""

    floor: float
    busy: load.Load
    alone: load.Load
    context: load.Load
    by_words: dict[str, load.Load]
    crowd: load.Load
    context_crowd: load.Load

    @property
    def failures(self) -> int:
        """The total of failed requests."""
        loads = (self.busy, self.alone, self.context, self.crowd, self.context_crowd, *self.by_words.values())
        return sum(each.failures for each in loads)


def run(scale: float) -> list[Row]:
    """Measure at `scale`; the targets are stated for 1.0."""
    with tempfile.TemporaryDirectory() as folder:
        small = filled(Path(folder) / "small", max(200, int(20_000 * scale)))
        large = filled(Path(folder) / "large", max(400, int(100_000 * scale)))
        few, many = (f"{api.count(store):,} memories" for store in (small, large))
        measured = _measure(small, large, max(40, int(600 * scale)))
    return [*_search_rows(measured, few, many), *_context_rows(measured, few, many)]


def _measure(small: Store, large: Store, requests: int) -> _Measured:
    floor = _in_process(small, requests // 2)
    with serving(small.folder, CMEM_VECTORS="embedded") as server:
        busy = _measured(server, small, "search", requests, _CONNECTIONS)
        alone = _measured(server, small, "search", requests // 2, 1)
        context = _measured(server, small, "context", requests // 2, 1)
    with serving(large.folder, CMEM_VECTORS="embedded") as server:
        by_words = {
            kind: _measured(server, large, "search", requests // 2, 1, kind=kind) for kind in ("common", "rare")
        }
        crowd = _measured(server, large, "search", requests, _CROWD)
        context_crowd = _measured(server, large, "context", requests, _CROWD)
    return _Measured(floor, busy, alone, context, by_words, crowd, context_crowd)


def _search_rows(measured: _Measured, few: str, many: str) -> list[Row]:
    rate, floor = measured.busy.per_second, measured.floor
    rows = [
        Row(
            f"hybrid search, {few}, {_CONNECTIONS} connections",
            f"{rate:,.0f}/s",
            f"in process {floor:,.0f}/s",
            rate / floor,
            "≥ 0.6",
        )
    ]
    p95_few = measured.alone.percentile_ms(0.95)
    for kind, result in measured.by_words.items():
        p95 = result.percentile_ms(0.95)
        what = f"{kind} words, {many}, p95 of 1 connection"
        rows += [
            Row(what, f"{p95:.1f} ms", f"{few} {p95_few:.1f} ms", p95 / p95_few, "≤ 4"),
            Row("  the same in milliseconds", f"{p95:.1f} ms", "150 ms", p95 / 150, "≤ 1"),
        ]
    p95 = measured.crowd.percentile_ms(0.95)
    median = min(result.percentile_ms(0.5) for result in measured.by_words.values())
    what = f"{many}, p95 of {_CROWD} connections"
    return [*rows, Row(what, f"{p95:.0f} ms", f"median of 1: {median:.1f} ms", p95 / median, "printed")]


def _context_rows(measured: _Measured, few: str, many: str) -> list[Row]:
    p50, p50_context = measured.alone.percentile_ms(0.5), measured.context.percentile_ms(0.5)
    rate, rate_context = measured.crowd.per_second, measured.context_crowd.per_second
    return [
        Row(
            f"context, {few}, p50 of 1 connection",
            f"{p50_context:.1f} ms",
            f"search {p50:.1f} ms",
            p50_context / p50,
            "≤ 1.2",
        ),
        Row(
            f"context, {many}, {_CROWD} connections",
            f"{rate_context:,.0f}/s",
            f"search {rate:,.0f}/s",
            rate / rate_context,
            "≤ 1.2",
        ),
        Row("failed requests", str(measured.failures), "0", float(measured.failures), "0"),
    ]


def filled(folder: Path, rows: int) -> Store:
    """Create a database with `rows` memories of one text each, and an index of random vectors over them."""
    folder.mkdir()
    store = prepared(folder)
    source = texts.memories(rows)
    with closing(vectors.index_of(store, vectors.RandomEmbedder())) as index:
        while batch := [{**item, "facts": []} for item in itertools.islice(source, _BATCH)]:
            new = [memories.NewMemory(project_id=store.project_id, **item) for item in batch]
            with store.database.write() as connection:
                ids = [memories.insert_once(connection, store.caller, each).memory.id for each in new]
                connection.exec_driver_sql("DELETE FROM vector_outbox")  # mirrored below, in large batches
            kept = [Document(f"mem_{each}_narrative", "", hash_of(each), {"memory_item_id": each}) for each in ids]
            name = collection_names.live(store.project_id)
            index.collections.upsert(name, index.model, kept, vectors.RandomEmbedder().embed(ids))
    return store


def queries(kind: str) -> Iterator[str]:
    """Yield distinct queries without end: of the most common words, of rare ones, or the fixed mix."""
    common, rare = texts.VOCABULARY[:12], texts.VOCABULARY[_RARE_WORDS_FROM : _RARE_WORDS_FROM + 2_000]
    for seed in itertools.count():
        if kind == "mixed":
            yield from texts.queries(seed=seed)
            continue
        words = common if kind == "common" else rare
        yield " ".join(words[(seed * step + step) % len(words)] for step in (1, 5, 7)) + f" {seed}"


def _measured(
    server: Running, store: Store, route: str, requests: int, connections: int, *, kind: str = "mixed"
) -> load.Load:
    searches = [
        load.request("POST", f"/v1/{route}", key=store.api_key, body=_body(store, query))
        for query in itertools.islice(queries(kind), requests + 20)
    ]
    load.run(server.url, searches[:20], count=20, connections=1)
    return load.run(server.url, searches[20:], count=requests, connections=connections)


def _body(store: Store, query: str) -> bytes:
    return json.dumps({"projectId": store.project_id, "query": query}).encode()


def _in_process(store: Store, times: int) -> float:
    """Return hybrid searches per second without HTTP, in one thread."""
    searches = (SearchParams(project_ids=(store.project_id,), query=query) for query in queries("mixed"))
    with closing(vectors.index_of(store, MiniLM(threads=1))) as index:
        engine = SearchEngine(sqlite, recency_half_life_days=90, index=index)
        with closing(engine):
            index.connect()
            load.timed(lambda: engine.search(store.database, store.caller, next(searches)), times=20)
            return load.timed(lambda: engine.search(store.database, store.caller, next(searches)), times=times)
