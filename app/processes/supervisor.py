"""`serve --workers N`: a parent that runs the background tasks, and workers that answer requests.

The parent does what must be done once per machine: it indexes memories with its Chroma child, runs operations, repairs
full text and does the daily maintenance. So no process has to be elected, nothing is embedded twice, and a worker that
dies loses only the requests it was answering.

Each worker has its own listening socket on the same port, and the kernel spreads connections over them. With one shared
socket, the process that wakes first accepts everything: sixteen connections went to one of two workers, and the second
core stayed idle. The parent keeps the sockets open too, so that connections made while a worker is replaced wait for
the next one.
"""

import asyncio
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Sequence
from contextlib import closing, suppress
from dataclasses import dataclass
from multiprocessing import Pipe
from pathlib import Path
from typing import Final

import click
import structlog

from app import logs, vector_index
from app.main import background_tasks
from app.processes.listener import metrics_port
from app.processes.metrics_server import METRICS_DIR_VARIABLE, forget_process
from app.settings import Settings
from app.store.database import Database
from app.vectors.index import VectorIndex
from app.vectors.remote import client

_log = structlog.get_logger(__name__)

WORKER_MODULE: Final = "app.processes.worker"
"""What a worker runs; tests run one with another clock."""

_POLL_SECONDS: Final = 0.1
_RESTART_DELAY_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 7.5
"""Five seconds for a worker's requests, and some for the rest of it; the parent's own tasks stop after that."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def serve(settings: Settings, listeners: Sequence[socket.socket]) -> None:
    """Serve until a signal arrives, then die from that signal as a single process does."""
    logs.configure(settings.log_level, settings.log_format)
    with (
        tempfile.TemporaryDirectory(prefix="cmem-metrics-") as metrics_dir,
        closing(Database(settings.resolved_database_url)) as database,
        metrics_port(database, settings, Path(metrics_dir)),
    ):
        number = asyncio.run(_serve(settings, listeners, database, Path(metrics_dir)))
    signal.raise_signal(number)


async def _serve(settings: Settings, listeners: Sequence[socket.socket], database: Database, metrics_dir: Path) -> int:
    index = vector_index.of(settings, database)
    stop = asyncio.get_running_loop().create_future()
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, _on_signal, stop, number)
    supervisor = Supervisor(settings, listeners, index, metrics_dir)
    async with background_tasks(settings, database, index):
        try:
            return await supervisor.run(stop)
        finally:
            await asyncio.to_thread(supervisor.shutdown)


def _on_signal(stop: asyncio.Future[int], number: int) -> None:
    if not stop.done():
        stop.set_result(number)


@dataclass(frozen=True, slots=True)
class _Worker:
    """A process that answers requests. It stops when its standard input is closed."""

    process: subprocess.Popen[bytes]
    started_at: float


class Supervisor:
    """Keeps one worker running for each listening socket."""

    def __init__(
        self, settings: Settings, listeners: Sequence[socket.socket], index: VectorIndex | None, metrics_dir: Path
    ) -> None:
        self._settings = settings
        self._listeners = listeners
        self._index = index
        self._metrics_dir = metrics_dir
        self._workers: dict[int, _Worker] = {}

    async def run(self, stop: asyncio.Future[int]) -> int:
        """Replace workers that die until `stop` has the number of a signal, and return that number."""
        while not stop.done():
            self.start_missing()
            await asyncio.wait({stop}, timeout=_POLL_SECONDS)
        return stop.result()

    def start_missing(self) -> None:
        """Start the workers that are not running. One that died at once is restarted after a delay, to avoid a loop.

        Raises ClickException when a worker exited with an error.
        """
        for number, listener in enumerate(self._listeners):
            worker = self._workers.get(number)
            if worker is not None and _can_be_replaced(worker):
                _require_no_error(self._reap(self._workers.pop(number)))
            if number not in self._workers:
                self._workers[number] = self._start(listener)

    def shutdown(self) -> None:
        """Stop all workers gracefully; kill those that exceed the grace period."""
        for worker in self._workers.values():
            worker.process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for worker in self._workers.values():
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            worker.process.kill()
            self._reap(worker)

    def _start(self, listener: socket.socket) -> _Worker:
        ours, theirs = Pipe()
        ours.send((self._settings, self._metrics_dir))
        with theirs:
            files = listener.fileno(), theirs.fileno()
            # In a session of its own: Ctrl-C at the terminal is for the parent, which then stops its workers.
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", WORKER_MODULE, *map(str, files)],
                stdin=subprocess.PIPE,
                env={**os.environ, METRICS_DIR_VARIABLE: str(self._metrics_dir)},
                pass_fds=files,
                start_new_session=True,
            )
        threading.Thread(target=client.serve, args=(self._index, ours), daemon=True).start()
        _log.info("worker_started", worker=process.pid)
        return _Worker(process, time.monotonic())

    def _reap(self, worker: _Worker) -> int:
        """Release what belongs to a worker that has ended, and return its exit code."""
        code = worker.process.wait()
        if worker.process.stdin:
            worker.process.stdin.close()
        forget_process(worker.process.pid, self._metrics_dir)
        _log.info("worker_ended", worker=worker.process.pid, code=code)
        return code


def _require_no_error(code: int) -> None:
    """Raise ClickException when a worker exited with an error of its own: its replacement would fail again."""
    if code > 0:
        raise click.ClickException("Worker exited with an error; see the log.")


def _can_be_replaced(worker: _Worker) -> bool:
    has_ended = worker.process.poll() is not None
    return has_ended and time.monotonic() > worker.started_at + _RESTART_DELAY_SECONDS
