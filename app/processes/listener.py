"""Serving on a socket that is already bound, in the only process or in each of several workers."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

import click
import uvicorn
from litestar import Litestar

from app.processes.metrics_server import serve_metrics
from app.settings import Settings
from app.store.database import Database

_GRACE_SECONDS: Final = 5
"""For requests in flight and open streams. The promise is ten seconds, and the rest of the process has to stop too."""


def listen(app: Litestar, listener: socket.socket, settings: Settings) -> bool:
    """Serve until a signal stops the process; return whether the server ever started."""
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        timeout_graceful_shutdown=_GRACE_SECONDS,
        proxy_headers=bool(settings.trusted_proxies),
        forwarded_allow_ips=settings.trusted_proxies or None,
    )
    server = uvicorn.Server(config)
    server.run(sockets=[listener])
    return server.started


@contextmanager
def metrics_port(database: Database, settings: Settings, metrics_dir: Path | None = None) -> Iterator[None]:
    """Serve the metrics on CMEM_METRICS_PORT, if set, while the context is open. A port in use is one clear line."""
    with ExitStack() as stack:
        try:
            stack.enter_context(serve_metrics(database, settings.host, settings.metrics_port, metrics_dir))
        except OSError as failure:
            address = f"{settings.host}:{settings.metrics_port}"
            raise click.ClickException(
                f"Cannot listen on {address} (CMEM_METRICS_PORT): {failure.strerror}"
            ) from failure
        yield
