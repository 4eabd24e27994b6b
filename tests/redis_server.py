"""Runs the installed Redis or Valkey server on loopback, without persistence."""

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager

PROGRAM = shutil.which("redis-server") or shutil.which("valkey-server")
START_TIMEOUT_SECONDS = 10.0


@contextmanager
def running(port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run a server on a port; yield its process."""
    command = [str(PROGRAM), "--bind", "127.0.0.1", "--port", str(port), "--save", "", "--appendonly", "no"]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            _wait_for(port)
            yield process
        finally:
            process.kill()


def _wait_for(port: int) -> None:
    deadline = time.monotonic() + START_TIMEOUT_SECONDS
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), timeout=1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return
    raise RuntimeError("Redis did not start")
