"""Where Chroma answers: an address that somebody else serves, or a supervised child on a folder of ours."""

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
from app.vectors.chroma.vacuum import GoOn, vacuum_owned
from app.vectors.errors import ConnectionLost, NotInitialized

_log = structlog.get_logger(__name__)

OPEN_FILES_NEEDED: Final = 512
"""Four a collection for the hundred that are open at once; the rest is for libraries and connections."""
_LOOPBACK: Final = "127.0.0.1"
_START_SECONDS: Final = 20.0
_STOP_SECONDS: Final = 5.0
_POLL_SECONDS: Final = 0.01


class Server(Protocol):
    """Somebody that serves Chroma's API."""

    @property
    def open_collections(self) -> int:
        """How many collections it may hold in memory before it is renewed; 0 when that is not our concern."""

    def address(self) -> str:
        """Return the base address, starting the server first if need be; raise VectorsUnavailable."""

    def renew(self) -> None:
        """Start afresh at the next call of address()."""

    def vacuum(self, go_on: GoOn) -> None:
        """Give back what deleted vectors took; raise VectorsUnavailable when that cannot be done."""

    def close(self) -> None:
        """Stop what was started here."""


class RemoteServer:
    """A Chroma server that somebody else runs."""

    open_collections = 0

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def address(self) -> str:
        """Return the address."""
        return self._url

    def renew(self) -> None:
        """Do nothing: it is not ours."""

    def vacuum(self, go_on: GoOn) -> None:
        """Do nothing: it is not ours."""

    def close(self) -> None:
        """Do nothing: it is not ours."""


class ChildServer:
    """Chroma on a folder, in a child process that ends with this one. One per folder, whatever the process."""

    def __init__(self, folder: Path, *, owner_name: str = "cmem-server", open_collections: int = 100) -> None:
        """`open_collections` bounds memory: each takes about 2.6 MB, and only a new child gives it back."""
        self.open_collections = open_collections
        self._folder = folder
        self._lock = FolderLock(folder.with_name(folder.name + ".lock"), owner_name=owner_name)
        self._config = folder.with_name(folder.name + ".server.yaml")
        self._log_file = folder.with_name(folder.name + ".log")
        self._guard = threading.Lock()
        self._child: subprocess.Popen[bytes] | None = None
        self._address = ""
        self._is_vacuumed = False

    def address(self) -> str:
        """Return the child's address; start it when it is not running. Raise NotInitialized when it cannot be."""
        with self._guard:
            if self._is_vacuumed:
                raise NotInitialized("The vector folder is being vacuumed.")
            if self._child is None or self._child.poll() is not None:
                self._start()
            return self._address

    def renew(self) -> None:
        """Stop the child; the next call of address() starts another."""
        with self._guard:
            self._stop()

    def vacuum(self, go_on: GoOn) -> None:
        """Stop the child and vacuum the folder; who asks for the address meanwhile is refused, and not kept waiting."""
        with self._guard:
            lock = self._lock.acquire()
            self._is_vacuumed = True
            self._stop()
        try:
            if self._folder.exists():
                vacuum_owned(self._folder, lock, go_on)
        finally:
            self._is_vacuumed = False

    def close(self) -> None:
        """Stop the child and leave the folder to others."""
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
            port = _free_port()
            self._config.write_text(_config(self._folder, port))
            self._child = self._spawn(lock)
        except OSError as cause:
            raise NotInitialized(f"The vector folder cannot be used: {cause.strerror}.") from cause
        self._address = f"http://{_LOOPBACK}:{port}"
        self._wait_until_it_listens(port)
        _log.info("chroma_started", child=self._child.pid, port=port)

    def _spawn(self, lock: int) -> subprocess.Popen[bytes]:
        # A session of its own: Ctrl-C at the terminal is for us, the child stops when we are done with it.
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

    def _wait_until_it_listens(self, port: int) -> None:
        deadline = time.monotonic() + _START_SECONDS
        while self._child and self._child.poll() is None and time.monotonic() < deadline:
            with suppress(OSError), socket.create_connection((_LOOPBACK, port), timeout=1.0):
                return
            time.sleep(_POLL_SECONDS)
        self._stop()
        raise ConnectionLost(f"The embedded Chroma did not start; {self._log_file.name} may say why.")

    def _stop(self) -> None:
        """End the child, politely first: closing its input does it, the signal does it sooner."""
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
    """Raise the soft limit of open files to the hard one, and return it: a collection takes four of the child's."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _config(folder: Path, port: int) -> str:
    """Return the child's configuration; JSON is YAML. Without an open_telemetry section nothing is reported."""
    return json.dumps({"listen_address": _LOOPBACK, "port": port, "persist_path": str(folder.absolute())})
