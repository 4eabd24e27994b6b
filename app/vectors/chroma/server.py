"""Where Chroma listens: a server that is run separately, or a supervised child process with our own folder."""

import json
import os
import resource
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

import structlog

from app.vectors.chroma.folder import FolderLock
from app.vectors.chroma.vacuum import StopCheck, vacuum_locked
from app.vectors.errors import ChromaConnectionLost, NotInitialized

_log = structlog.get_logger(__name__)

OPEN_FILES_NEEDED: Final = 512
"""Four per collection for the hundred that are open at once; the rest is for libraries and connections."""
_LOOPBACK: Final = "127.0.0.1"
_START_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.01


class Server(Protocol):
    """A server of Chroma's API."""

    @property
    def open_collections(self) -> int:
        """How many collections it may hold in memory before it is restarted; 0 for no limit."""

    def address(self) -> str:
        """Return the base URL; start the server first if necessary. Raises VectorsUnavailable."""

    def renew(self) -> None:
        """Restart the server at the next call of address()."""

    def vacuum(self, check_stop: StopCheck) -> None:
        """Reclaim the disk space of deleted vectors. Raises VectorsUnavailable."""

    def close(self) -> None:
        """Stop the server if this process started it."""


class RemoteServer:
    """A Chroma server that is run separately."""

    open_collections = 0

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def address(self) -> str:
        """Return the URL."""
        return self._url

    def renew(self) -> None:
        """Do nothing: the server is not our own."""

    def vacuum(self, check_stop: StopCheck) -> None:
        """Do nothing: the server is not our own."""

    def close(self) -> None:
        """Do nothing: the server is not our own."""


class ChildServer:
    """Chroma in a child process that ends with this one. A lock allows only one per folder, across processes."""

    def __init__(self, folder: Path, *, owner_name: str = "cmem-server", open_collections: int = 100) -> None:
        """`open_collections` bounds memory: each takes about 2.6 MB, which only a restart of the child frees."""
        self.open_collections = open_collections
        self._folder = folder
        self._lock = FolderLock(folder.with_name(folder.name + ".lock"), owner_name=owner_name)
        self._config = folder.with_name(folder.name + ".server.yaml")
        self._log_file = folder.with_name(folder.name + ".log")
        self._guard = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._address = ""
        self._is_vacuuming = False

    def address(self) -> str:
        """Return the child's URL; start it if it is not running.

        Raises NotInitialized when the folder cannot be used, ChromaConnectionLost when the child does not start.
        """
        with self._guard:
            if self._is_vacuuming:
                raise NotInitialized("The vector folder is being vacuumed.")
            if self._child is None or self._child.poll() is not None:
                self._start()
            return self._address

    def renew(self) -> None:
        """Stop the child; the next call of address() starts a new one."""
        with self._guard:
            self._stop()

    def vacuum(self, check_stop: StopCheck) -> None:
        """Stop the child and vacuum the folder; address() raises meanwhile instead of blocking."""
        with self._guard:
            lock = self._lock.acquire()
            self._is_vacuuming = True
            self._stop()
        try:
            if self._folder.exists():
                vacuum_locked(self._folder, lock, check_stop)
        finally:
            self._is_vacuuming = False

    def close(self) -> None:
        """Stop the child and release the folder."""
        with self._guard:
            self._stop()
            self._lock.release()

    @property
    def pid(self) -> int | None:
        """The child's process id, while it has one."""
        return self._child.pid if self._child else None

    def _start(self) -> None:
        self._stop()
        lock = self._lock.acquire()
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            raise_open_files_limit()
            port = find_free_port()
            self._config.write_text(_config(self._folder, port))
            self._child = self._spawn(lock)
        except OSError as cause:
            raise NotInitialized(f"The vector folder cannot be used: {cause.strerror}.") from cause
        self._address = f"http://{_LOOPBACK}:{port}"
        self._wait_until_listening(port)
        _log.info("chroma_started", child=self._child.pid, port=port)

    def _spawn(self, lock: int) -> subprocess.Popen[bytes]:
        # A session of its own, so that Ctrl-C in the terminal does not reach the child: this process stops it.
        with self._log_file.open("wb") as log:
            return subprocess.Popen(  # noqa: S603 - our own interpreter and module
                [sys.executable, "-m", "app.vectors.chroma.child", str(self._config)],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=log,
                env={name: value for name, value in os.environ.items() if not name.startswith("CHROMA_")},
                pass_fds=(lock,),
                start_new_session=True,
            )

    def _wait_until_listening(self, port: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self._child and self._child.poll() is None and time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection((_LOOPBACK, port), timeout=1.0):
                return
            time.sleep(_POLL_SECONDS)
        self._stop()
        raise ChromaConnectionLost(f"The embedded Chroma did not start; see {self._log_file.name}.")

    def _stop(self) -> None:
        """Stop the child: send SIGTERM and close its input; kill it after a grace period."""
        child, self._child = self._child, None
        if child is None:
            return
        with suppress(OSError):
            child.send_signal(signal.SIGTERM)
        if child.stdin:
            child.stdin.close()
        try:
            child.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            child.kill()
            child.wait()


def raise_open_files_limit() -> int:
    """Raise the soft limit of open files to the hard limit and return it: the child needs four per collection."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def find_free_port() -> int:
    """Return a port that is currently free on loopback."""
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _config(folder: Path, port: int) -> str:
    """Return the child's configuration, as JSON, which is valid YAML. Without open_telemetry there is no telemetry."""
    return json.dumps({"listen_address": _LOOPBACK, "port": port, "persist_path": str(folder.absolute())})
