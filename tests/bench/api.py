"""Reads and writes of memories over HTTP, against bare Litestar and raw SQLite."""

import itertools
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from app.clock import new_id, now_ms
from app.services.memories import memories
from tests.bench import floors, load, texts
from tests.bench.harness import Row, Running, Store, prepared, process, serving

_CONNECTIONS = 16
_BATCH = 500
_WARM_UP_SECONDS = 2.0


def run(scale: float) -> list[Row]:
    """Measure at `scale`; the targets are stated for 1.0."""
    with tempfile.TemporaryDirectory() as folder:
        small = filled(Path(folder) / "small", max(50, int(1_000 * scale)))
        large = filled(Path(folder) / "large", max(100, int(100_000 * scale)))
        with serving(small.folder) as server:
            rows = _one_memory(small, server, scale)
            rates = _changes(small, server, scale)
        with serving(large.folder) as server:
            rows += [
                Row(
                    f"{what} at {large_rows:,} rows",
                    f"{rate:,.0f}/s",
                    f"small {rates[what]:,.0f}/s",
                    rate / rates[what],
                    "≥ 0.8",
                )
                for large_rows in [count(large)]
                for what, rate in _changes(large, server, scale).items()
            ]
        rows.append(_memory_after_writing(Path(folder) / "grown", scale))
    return rows


def filled(folder: Path, rows: int, url: str | None = None) -> Store:
    """Create a database with `rows` memories, or fill the one at `url` with them."""
    folder.mkdir(exist_ok=True)
    store = prepared(folder, url)
    source = texts.memories(rows)
    while batch := [item for _, item in zip(range(1_000), source, strict=False)]:
        with store.database.write() as connection:
            for item in batch:
                new = memories.NewMemory(project_id=store.project_id, **item)
                memories.insert_once(connection, store.caller, new)
    return store


def count(store: Store) -> int:
    """Return the number of memories in a store."""
    with store.database.read() as connection:
        return int(connection.exec_driver_sql("SELECT count(*) FROM memory_items").scalar_one())


def some_ids(store: Store, limit: int) -> list[str]:
    """Return `limit` random ids of memories."""
    with store.database.read() as connection:
        rows = connection.exec_driver_sql(f"SELECT id FROM memory_items ORDER BY random() LIMIT {limit}")
        return [row[0] for row in rows]


def posts(store: Store, count: int, *, seed: int) -> list[bytes]:
    """Return requests that each store a different memory."""
    items = texts.memories(count, seed=seed)
    return [_post(store, "/v1/memories", {**item, "projectId": store.project_id}) for item in items]


def _post(store: Store, path: str, body: Any) -> bytes:
    return load.request("POST", path, key=store.api_key, body=json.dumps(body).encode())


def _one_memory(store: Store, server: Running, scale: float) -> list[Row]:
    requests = max(200, int(8_000 * scale))
    gets = [load.request("GET", f"/v1/memories/{each}", key=store.api_key) for each in some_ids(store, 200)]
    load.run(server.url, gets, count=200)
    got = load.run(server.url, gets, count=requests, connections=_CONNECTIONS)
    bare = _empty_handler(server, gets[0], requests)
    read = _raw_read(store, requests)
    written = load.run(server.url, posts(store, requests // 4, seed=2), count=requests // 4, connections=_CONNECTIONS)
    raw = _raw_write(store, max(100, requests // 8))
    batches = _batches(store, server, max(2, int(10 * scale)))
    raw_batch = _raw_batch(store, max(2, int(10 * scale)))
    slowed = _while_writing(store, server, gets, requests // 4)
    many = load.run(server.url, gets, count=requests, connections=100)
    failures = got.failures + written.failures + many.failures
    return [
        Row("GET one memory", _rate(got), f"F0 {bare:,.0f}/s", got.per_second / bare, "≥ 0.15, better 0.25"),
        Row("  the same against F1", _rate(got), f"F1 {read:,.0f}/s", got.per_second / read, "–"),
        Row("POST one memory", _rate(written), f"F2 {raw:,.0f}/s", written.per_second / raw, "≥ 0.30, better 0.45"),
        Row("POST batch of 500, rows", f"{batches:,.0f}/s", f"raw {raw_batch:,.0f}/s", batches / raw_batch, "≥ 0.4"),
        Row(
            "GET p50 while 100 connections write",
            f"{slowed.percentile_ms(0.5):.1f} ms",
            f"idle {got.percentile_ms(0.5):.1f} ms",
            slowed.percentile_ms(0.5) / got.percentile_ms(0.5),
            "≤ 5",
        ),
        Row("GET with 100 connections", _rate(many), f"16: {_rate(got)}", many.per_second / got.per_second, "≥ 0.8"),
        Row("failed requests of all above", str(failures), "0", float(failures), "0"),
    ]


def _rate(result: load.Load) -> str:
    return f"{result.per_second:,.0f}/s"


def _empty_handler(server: Running, get: bytes, requests: int) -> float:
    bodies = load.run(server.url, [get], count=1, keep_bodies=True).bodies
    environment = {**os.environ, "FLOOR_REPLY": next(iter(bodies)).decode()}
    with process([sys.executable, "-m", "tests.bench.floors"], environment) as bare:
        load.run(bare.url, [load.request("GET", "/")], count=200)
        return load.run(bare.url, [load.request("GET", "/")], count=requests).per_second


def _raw_read(store: Store, requests: int) -> float:
    connection = floors.connect(store.database.path)
    ids = itertools.cycle(some_ids(store, 200))
    sql = "SELECT * FROM memory_items WHERE id = ? AND team_id = ?"
    rate = load.timed(lambda: connection.execute(sql, (next(ids), store.caller.team_id)).fetchone(), times=requests)
    connection.close()
    return rate


def _raw_write(store: Store, times: int) -> float:
    connection = floors.connect(store.database.path)
    write = _raw_writer(store, connection)

    def one() -> None:
        connection.execute("BEGIN IMMEDIATE")
        write()
        connection.execute("COMMIT")

    rate = load.timed(one, times=times)
    connection.close()
    return rate


def _raw_batch(store: Store, batches: int) -> float:
    connection = floors.connect(store.database.path)
    write = _raw_writer(store, connection)

    def batch() -> None:
        connection.execute("BEGIN IMMEDIATE")
        for _ in range(_BATCH):
            write()
        connection.execute("COMMIT")

    rate = load.timed(batch, times=batches) * _BATCH
    connection.close()
    return rate


def _raw_writer(store: Store, connection: sqlite3.Connection) -> Callable[[], None]:
    """Return a function that writes the same rows as a POST, including the audit row; triggers do the rest."""
    names, values = floors.copied_row(connection, some_ids(store, 1)[0])
    memory = f"INSERT INTO memory_items({', '.join(names)}) VALUES ({', '.join('?' * len(names))})"
    audit = (
        "INSERT INTO audit_log(id, team_id, project_id, action, target_type, target_id, outcome, count,"
        " created_at_epoch) VALUES (?, ?, ?, 'memory.create', 'memory', ?, 'done', 1, ?)"
    )
    id_index, hash_index = names.index("id"), names.index("content_hash")

    def write() -> None:
        values[id_index] = values[hash_index] = new_id()
        connection.execute(memory, values)
        written = (new_id(), store.caller.team_id, store.project_id, values[id_index], now_ms())
        connection.execute(audit, written)

    return write


def _batches(store: Store, server: Running, batches: int) -> float:
    source = texts.memories(_BATCH * batches, seed=3)
    bodies = [[{**next(source), "projectId": store.project_id} for _ in range(_BATCH)] for _ in range(batches)]
    requests = [_post(store, "/v1/memories/batch", body) for body in bodies]
    return load.run(server.url, requests, count=batches, connections=1).per_second * _BATCH


def _while_writing(store: Store, server: Running, gets: list[bytes], requests: int) -> load.Load:
    """Measure reads over 16 connections while 100 others write continuously, from a separate process."""
    crowd = [sys.executable, "-m", "tests.bench.writers", server.url, store.api_key, store.project_id, "100", "50000"]
    writers = subprocess.Popen(crowd, stderr=subprocess.DEVNULL)
    time.sleep(_WARM_UP_SECONDS)
    try:
        return load.run(server.url, gets, count=requests, connections=_CONNECTIONS)
    finally:
        writers.kill()
        writers.wait()


def _changes(store: Store, server: Running, scale: float) -> dict[str, float]:
    requests = max(100, int(1_500 * scale))
    ids = some_ids(store, requests)
    patches = [
        load.request("PATCH", f"/v1/memories/{each}", key=store.api_key, body=json.dumps({"title": new_id()}).encode())
        for each in ids
    ]
    patched = load.run(server.url, patches, count=len(ids), connections=_CONNECTIONS)
    gone = some_ids(store, min(requests, count(store) // 2))
    deletes = [load.request("DELETE", f"/v1/memories/{each}", key=store.api_key) for each in gone]
    deleted = load.run(server.url, deletes, count=len(gone), connections=_CONNECTIONS)
    return {"PATCH": patched.per_second, "DELETE": deleted.per_second}


def _memory_after_writing(folder: Path, scale: float) -> Row:
    folder.mkdir()
    store = prepared(folder)
    total = max(_BATCH, int(100_000 * scale))
    source = texts.memories(total, seed=5)
    with serving(folder) as server:
        for _ in range(total // _BATCH):
            body = [{**next(source), "projectId": store.project_id} for _ in range(_BATCH)]
            load.run(server.url, [_post(store, "/v1/memories/batch", body)], count=1, connections=1)
        resident = server.memory_mib()
    return Row(f"server memory after {total:,} rows", f"{resident:.0f} MiB", "250 MiB", resident / 250, "≤ 1")
