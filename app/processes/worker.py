"""One of several processes that answer requests: `python -m app.processes.worker SOCKET LINE`, two inherited files.

It lives as long as its standard input is open. The parent holds the other end, so the worker ends with it however the
parent dies. Settings come over the line, so that a worker that is started later is like its fellows.
"""

import socket
import sys
from multiprocessing.connection import Connection as Line
from typing import Final

from app import parent_watchdog
from app.main import Share, create_app
from app.processes.listener import listen
from app.settings import load_telemetry
from app.store import usage_lock
from app.vectors.remote.client import Keeper

_GRACE_SECONDS: Final = 9.0


def main(listener: socket.socket, line: Line) -> None:
    """Serve until the parent is gone or asks to stop."""
    parent_watchdog.end_with_parent(grace_seconds=_GRACE_SECONDS)
    settings, tallies = line.recv()
    with usage_lock.using(settings.resolved_database_url):
        has_served = listen(create_app(settings, Share(Keeper(line), tallies), load_telemetry()), listener, settings)
    if not has_served:
        sys.exit("it could not start")


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), Line(int(sys.argv[2])))
