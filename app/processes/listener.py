"""Serving on a socket that is bound already: what one process alone and each of several have in common."""

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
"""For requests at hand and open streams; what the parts need to end is on top, and ten seconds is the promise."""


def listen(app: Litestar, listener: socket.socket, settings: Settings) -> bool:
    """Serve until a signal ends it; return whether it ever began."""
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
def scraped(database: Database, settings: Settings, tallies: Path | None = None) -> Iterator[None]:
    """Serve the metrics on a port of their own meanwhile, if that is wanted; a taken port is one clear line."""
    with ExitStack() as stack:
        try:
            place = settings.host, settings.metrics_port
            stack.enter_context(serve_metrics(database, *place, tallies))
        except OSError as failure:
            taken = f"CMEM_METRICS_PORT={settings.metrics_port}: cannot listen on {settings.host}"
            raise click.ClickException(f"{taken}: {failure.strerror}") from failure
        yield
