"""`serve --workers N`: a parent that keeps the house, and workers that answer requests.

What is done once per machine is done in the parent: the mirror with its Chroma child, operations, healing, daily care.
So nothing has to be elected, nothing is embedded twice, and a worker that dies takes nothing along but its requests.

Each worker has a listening socket of its own on the one port, and the kernel spreads connections over them. On a single
socket whoever wakes first takes them all: sixteen connections at one of two workers, and no second core at work. The
parent holds the sockets too: what comes in while a worker is replaced waits for the next one.
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
from app.api.http.thread_pools import Workers
from app.main import keeping_house
from app.processes import metrics_server
from app.processes.listener import scraped
from app.settings import Settings
from app.store.database import Database
from app.vectors.index import VectorIndex
from app.vectors.remote import client

_log = structlog.get_logger(__name__)

_LOOK_EVERY_SECONDS: Final = 0.1
_REPLACED_AFTER_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 7.5
"""A worker gives its requests five seconds and needs a moment for its parts; the parent's own parts come after."""
_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def serve(settings: Settings, listeners: Sequence[socket.socket]) -> None:
    """Serve until a signal comes, then end by it as a single process does."""
    logs.configure(settings.log_level, settings.log_format)
    with (
        tempfile.TemporaryDirectory(prefix="cmem-tallies-") as tallies,
        closing(Database(settings.resolved_database_url)) as database,
        scraped(database, settings, Path(tallies)),
    ):
        number = asyncio.run(_serve(settings, listeners, database, Path(tallies)))
    signal.raise_signal(number)


async def _serve(settings: Settings, listeners: Sequence[socket.socket], database: Database, tallies: Path) -> int:
    index = vector_index.of(settings, database)
    threads = Workers(readers=1, searchers=0)
    told = asyncio.get_running_loop().create_future()
    for number in _SIGNALS:
        asyncio.get_running_loop().add_signal_handler(number, _tell, told, number)
    crew = Crew(settings, listeners, index, tallies)
    try:
        async with keeping_house(settings, database, threads, index):
            try:
                return await _man(crew, told)
            finally:
                await asyncio.to_thread(crew.dismiss)
    finally:
        threads.close()


def _tell(told: asyncio.Future[int], number: int) -> None:
    if not told.done():
        told.set_result(number)


async def _man(crew: "Crew", told: asyncio.Future[int]) -> int:
    """Keep the crew complete until a signal comes; return which."""
    while not told.done():
        crew.fill()
        await asyncio.wait({told}, timeout=_LOOK_EVERY_SECONDS)
    return told.result()


@dataclass(frozen=True, slots=True)
class _Worker:
    """A process that answers requests. It ends when its standard input does."""

    process: subprocess.Popen[bytes]
    started_at: float


class Crew:
    """One worker for each socket, at any time."""

    def __init__(
        self, settings: Settings, listeners: Sequence[socket.socket], index: VectorIndex | None, tallies: Path
    ) -> None:
        self._settings = settings
        self._listeners = listeners
        self._index = index
        self._tallies = tallies
        self._workers: dict[int, _Worker] = {}

    def fill(self) -> None:
        """Start who is missing. One that died young is replaced a moment later, so that no storm comes of it."""
        for place, listener in enumerate(self._listeners):
            worker = self._workers.get(place)
            if worker is not None and _is_gone(worker):
                _require_killed(self._bury(self._workers.pop(place)))
            if place not in self._workers:
                self._workers[place] = self._start(listener)

    def dismiss(self) -> None:
        """Have all workers finish their requests and end; kill who does not in time."""
        for worker in self._workers.values():
            worker.process.terminate()
        deadline = time.monotonic() + _STOP_SECONDS
        for worker in self._workers.values():
            with suppress(subprocess.TimeoutExpired):
                worker.process.wait(max(0.0, deadline - time.monotonic()))
            worker.process.kill()
            self._bury(worker)

    def _start(self, listener: socket.socket) -> _Worker:
        ours, theirs = Pipe()
        ours.send((self._settings, self._tallies))
        with theirs:
            files = listener.fileno(), theirs.fileno()
            # A session of its own: Ctrl-C at the terminal is for the parent, which tells its workers.
            process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", "app.processes.worker", *map(str, files)],
                stdin=subprocess.PIPE,
                env={**os.environ, metrics_server.METRICS_DIR_VARIABLE: str(self._tallies)},
                pass_fds=files,
                start_new_session=True,
            )
        threading.Thread(target=client.answer, args=(self._index, ours), daemon=True).start()
        _log.info("worker_started", worker=process.pid)
        return _Worker(process, time.monotonic())

    def _bury(self, worker: _Worker) -> int:
        """Let go of a worker that has ended; return its exit code."""
        code = worker.process.wait()
        if worker.process.stdin:
            worker.process.stdin.close()
        metrics_server.forget_process(worker.process.pid, self._tallies)
        _log.info("worker_ended", worker=worker.process.pid, code=code)
        return code


def _require_killed(code: int) -> None:
    """Raise when a worker ended by a failure of its own: another one would fail again."""
    if code > 0:
        raise click.ClickException("a worker could not go on; the log says why")


def _is_gone(worker: _Worker) -> bool:
    has_ended = worker.process.poll() is not None
    return has_ended and time.monotonic() > worker.started_at + _REPLACED_AFTER_SECONDS
