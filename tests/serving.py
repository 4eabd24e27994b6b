"""The server as an operator starts it: a process of its own, with what it prints."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx

ROOT = Path(__file__).parents[1]
START_SECONDS = 60.0


@dataclass(frozen=True)
class Started:
    """A server that answers: its process, where it listens, and all that it printed."""

    process: subprocess.Popen[bytes]
    url: str
    printed: str

    @property
    def exported(self) -> dict[str, str]:
        """The variables that a first start tells a newcomer to export."""
        return dict(re.findall(r"([A-Z]+)=(\S+)", self.printed))


def serve_command(data_dir: Path, *options: str) -> tuple[list[str], dict[str, str]]:
    """Return the command line of `serve` and an environment without this machine's settings."""
    environment = {"PATH": os.environ["PATH"], "CMEM_DATA_DIR": str(data_dir), "CMEM_VECTORS": "off"}
    return [sys.executable, "-m", "app", "serve", *options], environment


@contextmanager
def serving(data_dir: Path, *options: str) -> Iterator[Started]:
    """Start a server on a free port; it answers when this yields, and is asked to stop at the end."""
    command, environment = serve_command(data_dir, "--port", "0", *options)
    with (
        tempfile.TemporaryFile("w+b") as output,
        subprocess.Popen(command, env=environment, cwd=ROOT, stdout=output, stderr=subprocess.DEVNULL) as process,
    ):
        try:
            yield _started(process, output)
        finally:
            process.send_signal(signal.SIGTERM)


def _started(process: subprocess.Popen[bytes], output: IO[bytes]) -> Started:
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at and process.poll() is None:
        printed = os.pread(output.fileno(), 1_000_000, 0).decode()
        if (found := re.search(r"listens on ([^,\s]+)", printed)) and _answers(found.group(1)):
            return Started(process, found.group(1), printed)
        time.sleep(0.02)
    raise AssertionError("the server did not start")


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", trust_env=False, timeout=5).status_code == 200
    except httpx.TransportError:
        return False
