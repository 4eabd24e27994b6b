"""Two replicas on PostgreSQL and a Chroma server embed as fast as one on the same cores, and nothing twice."""

import re
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

import httpx

from tests import chroma_server, postgresql
from tests.bench.harness import Row, Store, prepared, serving
from tests.bench.vectors import long_memories
from tests.stores import PostgresqlStores

_TIMEOUT_SECONDS = 900.0
_LOOK_EVERY_SECONDS = 0.05
_WAITING = "SELECT count(*) FROM vector_outbox"


def run(scale: float) -> list[Row]:
    """Measure at `scale`; 1.0 is the size that the targets are stated for."""
    programs = postgresql.binaries()
    if programs is None:
        raise SystemExit("PostgreSQL's programs (initdb, pg_ctl) are not installed")
    rows = max(48, int(2_000 * scale))
    with tempfile.TemporaryDirectory() as folder, postgresql.running(programs, durable=True) as cluster:
        stores = PostgresqlStores(cluster)
        (one, texts), (two, texts_of_two) = (
            _mirrored(stores, Path(folder) / str(replicas), rows, replicas) for replicas in (1, 2)
        )
    return [
        Row(f"mirror of two replicas, {rows:,} memories", f"{two:.1f}/s", f"one {one:.1f}/s", two / one, "≥ 0.95"),
        Row("  texts embedded", f"{texts_of_two:,.0f}", f"one {texts:,.0f}", texts_of_two / texts, "1"),
    ]


def _mirrored(stores: PostgresqlStores, folder: Path, rows: int, replicas: int) -> tuple[float, float]:
    """Return memories per second from the commit of all until none waits, and how many texts were embedded."""
    folder.mkdir()
    store = prepared(folder, stores.url(folder))
    ports = [chroma_server.free_port() for _ in range(replicas)]
    with closing(store.database), ExitStack() as stack:
        chroma = stack.enter_context(chroma_server.running(folder / "chroma"))
        for port in ports:
            settings = {**store.settings, "CMEM_VECTORS": "http", "CMEM_CHROMA_URL": chroma}
            server = stack.enter_context(serving(folder, **settings, CMEM_METRICS_PORT=str(port)))
            _until_ready(server.url)
        before = sum(map(_embedded_texts, ports))
        long_memories(store, rows)
        seconds = _seconds_until_none_waits(store)
        return rows / seconds, sum(map(_embedded_texts, ports)) - before


def _until_ready(url: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while httpx.get(f"{url}/readyz", trust_env=False).json()["vectors"] != "ready":
        assert time.monotonic() < deadline, "the vectors did not get ready"
        time.sleep(_LOOK_EVERY_SECONDS)


def _seconds_until_none_waits(store: Store) -> float:
    started = time.monotonic()
    while True:
        with store.database.read() as connection:
            waiting = connection.exec_driver_sql(_WAITING).scalar_one()
        if not waiting:
            return time.monotonic() - started
        assert time.monotonic() < started + _TIMEOUT_SECONDS, f"{waiting} memories still wait"
        time.sleep(_LOOK_EVERY_SECONDS)


def _embedded_texts(port: int) -> float:
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    found = re.search(r"^cmem_embedded_texts_total (\S+)", text, re.MULTILINE)
    return float(found.group(1)) if found else 0.0
