"""Two replicas on PostgreSQL and a Chroma server embed as fast as one on the same cores, and no text twice."""

import re
import tempfile
import time
from contextlib import ExitStack, closing
from pathlib import Path

import httpx

from tests import chroma_server, postgresql
from tests.bench.harness import Row, Store, prepared, serving
from tests.bench.vectors import long_memories
from tests.databases import PostgresqlDatabases

_TIMEOUT_SECONDS = 900.0
_POLL_SECONDS = 0.05
_PENDING = "SELECT count(*) FROM vector_outbox"


def run(scale: float) -> list[Row]:
    """Measure at `scale`; the targets are stated for 1.0."""
    programs = postgresql.binaries()
    if programs is None:
        raise SystemExit("PostgreSQL's programs (initdb, pg_ctl) are not installed")
    rows = max(48, int(2_000 * scale))
    with tempfile.TemporaryDirectory() as folder, postgresql.running(programs, durable=True) as cluster:
        databases = PostgresqlDatabases(cluster)
        (one, texts), (two, texts_of_two) = (
            _mirrored(databases, Path(folder) / str(replicas), rows, replicas) for replicas in (1, 2)
        )
    return [
        Row(f"mirror of two replicas, {rows:,} memories", f"{two:.1f}/s", f"one {one:.1f}/s", two / one, "≥ 0.95"),
        Row("  texts embedded", f"{texts_of_two:,.0f}", f"one {texts:,.0f}", texts_of_two / texts, "1"),
    ]


def _mirrored(databases: PostgresqlDatabases, folder: Path, rows: int, replicas: int) -> tuple[float, float]:
    """Return memories per second, from the commit of all until none is pending, and how many texts were embedded."""
    folder.mkdir()
    store = prepared(folder, databases.url(folder))
    ports = [chroma_server.free_port() for _ in range(replicas)]
    with closing(store.database), ExitStack() as stack:
        chroma = stack.enter_context(chroma_server.running(folder / "chroma"))
        for port in ports:
            settings = {**store.settings, "CMEM_VECTORS": "http", "CMEM_CHROMA_URL": chroma}
            server = stack.enter_context(serving(folder, **settings, CMEM_METRICS_PORT=str(port)))
            _until_ready(server.url)
        before = sum(map(_embedded_texts, ports))
        long_memories(store, rows)
        seconds = _seconds_until_none_pending(store)
        return rows / seconds, sum(map(_embedded_texts, ports)) - before


def _until_ready(url: str) -> None:
    deadline = time.monotonic() + _TIMEOUT_SECONDS
    while httpx.get(f"{url}/readyz", trust_env=False).json()["vectors"] != "ready":
        assert time.monotonic() < deadline, "the vectors were not ready in time"
        time.sleep(_POLL_SECONDS)


def _seconds_until_none_pending(store: Store) -> float:
    started = time.monotonic()
    while True:
        with store.database.read() as connection:
            pending = connection.exec_driver_sql(_PENDING).scalar_one()
        if not pending:
            return time.monotonic() - started
        assert time.monotonic() < started + _TIMEOUT_SECONDS, f"{pending} memories are still pending"
        time.sleep(_POLL_SECONDS)


def _embedded_texts(port: int) -> float:
    text = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False).text
    match = re.search(r"^cmem_embedded_texts_total (\S+)", text, re.MULTILINE)
    return float(match.group(1)) if match else 0.0
