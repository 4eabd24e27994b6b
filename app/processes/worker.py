"""One of several processes that answer requests: `python -m app.processes.worker SOCKET PIPE`, two inherited files.

It runs as long as its standard input is open. The parent holds the other end, so the worker ends with it, however the
parent dies. Settings come through the pipe, so that a worker that starts later has the same as the others.
"""

import socket
import sys
from multiprocessing.connection import Connection as PipeConnection
from typing import Final

from app import parent_watchdog
from app.main import WorkerContext, create_app
from app.processes.listener import listen
from app.settings import load_telemetry
from app.store import usage_lock
from app.vectors.remote.client import IndexOwnerClient

_GRACE_SECONDS: Final = 9.0


def main(listener: socket.socket, pipe: PipeConnection) -> None:
    """Serve until the parent is gone or stops this process."""
    parent_watchdog.end_with_parent(grace_seconds=_GRACE_SECONDS)
    settings, metrics_dir = pipe.recv()
    context = WorkerContext(IndexOwnerClient(pipe), metrics_dir)
    with usage_lock.shared(settings.resolved_database_url):
        has_started = listen(create_app(settings, context, load_telemetry()), listener, settings)
    if not has_started:
        sys.exit("Worker failed to start.")


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), PipeConnection(int(sys.argv[2])))
