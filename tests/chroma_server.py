"""A Chroma server as an operator runs it: `chroma run`, in its own process on loopback."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from app.vectors.chroma.server import find_free_port as free_port

PROGRAM = Path(sys.executable).with_name("chroma")

__all__ = ["PROGRAM", "free_port", "running"]


@contextmanager
def running(folder: Path, port: int | None = None) -> Iterator[str]:
    """Yield the address of a server on a folder; it may not answer yet. It is killed at the end, as by a power cut."""
    chosen = free_port() if port is None else port
    command = [PROGRAM, "run", "--path", folder, "--host", "127.0.0.1", "--port", str(chosen)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        try:
            yield f"http://127.0.0.1:{chosen}"
        finally:
            process.kill()
