"""Metrics on a port of their own, and the folder in which several processes share their counters."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from prometheus_client import multiprocess, start_http_server

from app.services.operations.metrics import ServerMetrics
from app.store.database import Database

METRICS_DIR_VARIABLE: Final = "PROMETHEUS_MULTIPROC_DIR"
"""The environment variable of prometheus_client that names the folder. Must be set before the first counter is made."""


@contextmanager
def serve_metrics(database: Database, host: str, port: int, metrics_dir: Path | None = None) -> Iterator[None]:
    """Serve the metrics without authentication, for as long as the context is open; port 0 turns this off.

    Raises OSError when the port is taken. Runs in its own threads, so scrapes and requests never wait for each other.
    """
    if not port:
        yield
        return
    server, thread = start_http_server(port, addr=host, registry=ServerMetrics(database, metrics_dir))
    try:
        yield
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def forget_process(pid: int, metrics_dir: Path) -> None:
    """Drop the live gauges of a process that has ended; its counters are kept."""
    multiprocess.mark_process_dead(pid, str(metrics_dir))  # type: ignore[no-untyped-call]
