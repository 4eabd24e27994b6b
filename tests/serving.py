"""The server as an operator starts it: as a separate process, with its output."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import httpx

from app.store.database import Database
from tests import ROOT
from tests.processes.slow_clock import minute_start_ms

START_SECONDS = 60.0


@dataclass(frozen=True)
class Started:
    """A server that answers: its process, its URL and its output."""

    process: subprocess.Popen[bytes]
    url: str
    printed: str

    @property
    def exported(self) -> dict[str, str]:
        """The variables that the first start prints for a newcomer to export."""
        return dict(re.findall(r"([A-Z]+)=(\S+)", self.printed))


def serve_command(
    data_dir: Path, *options: str, slow_clock: bool = False, **settings: str
) -> tuple[list[str], dict[str, str]]:
    """Return the command line of `serve` and an environment of these settings alone; capitals name other variables."""
    program = slow_clock_program() if slow_clock else [sys.executable, "-m", "app"]
    chosen = {name if name.isupper() else f"CMEM_{name.upper()}": value for name, value in settings.items()}
    environment = {"PATH": os.environ["PATH"], "CMEM_DATA_DIR": str(data_dir), "CMEM_VECTORS": "off", **chosen}
    return [*program, "serve", *options], environment


def slow_clock_program() -> list[str]:
    """Return a program like `python -m app` that has only begun with the current minute, and does not end it."""
    return [sys.executable, "-m", "tests.processes.slow_clock", str(minute_start_ms())]


@contextmanager
def serving(data_dir: Path, *options: str, slow_clock: bool = False, **settings: str) -> Iterator[Started]:
    """Start a server on a free port. It answers when this yields, and is stopped at the end."""
    command, environment = serve_command(data_dir, "--port", "0", *options, slow_clock=slow_clock, **settings)
    with started_by(command, environment, ROOT) as started:
        yield started


@dataclass(frozen=True)
class Home:
    """What processes of one server share: a data folder, and the settings of the database."""

    folder: Path
    settings: dict[str, str]

    def serving(self, *, slow_clock: bool = False, **settings: str) -> AbstractContextManager[Started]:
        """Start a server on a free port; it is stopped at the end."""
        return serving(self.folder, slow_clock=slow_clock, **self.settings, **settings)

    def run(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        """Run a command to its end."""
        _, environment = serve_command(self.folder, **self.settings)
        command = [sys.executable, "-m", "app", *arguments]
        return subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)

    def database(self) -> AbstractContextManager[Database]:
        """Open the database as the servers do; it is closed at the end."""
        return closing(Database(self.settings.get("database_url", f"sqlite:///{self.folder / 'cmem.db'}")))


@contextmanager
def started_by(command: Sequence[str | Path], environment: dict[str, str], folder: Path) -> Iterator[Started]:
    """Run a command that serves. It answers when this yields, and is stopped at the end."""
    with (
        tempfile.TemporaryFile("w+b") as output,
        subprocess.Popen(command, env=environment, cwd=folder, stdout=output, stderr=subprocess.DEVNULL) as process,
    ):
        try:
            yield _started(process, output)
        finally:
            process.send_signal(signal.SIGTERM)


def _started(process: subprocess.Popen[bytes], output: IO[bytes]) -> Started:
    give_up_at = time.monotonic() + START_SECONDS
    while time.monotonic() < give_up_at and process.poll() is None:
        printed = os.pread(output.fileno(), 1_000_000, 0).decode()
        if (match := re.search(r"listening on (\S+)", printed)) and _answers(match.group(1)):
            return Started(process, match.group(1), printed)
        time.sleep(0.02)
    raise AssertionError("the server did not start")


def _answers(url: str) -> bool:
    try:
        return httpx.get(f"{url}/healthz", trust_env=False, verify=False, timeout=5).status_code == 200
    except httpx.TransportError:
        return False
