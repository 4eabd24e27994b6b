"""IPC with the process that owns the vector index: where Chroma listens, and what the index can answer for.

A pipe connects the two. It carries our own objects between our own processes, and closes when either of them ends.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection as Pipe
from typing import Any, Final, NamedTuple

import structlog

from app.vectors.errors import ChromaConnectionLost, TimedOut, VectorsUnavailable
from app.vectors.index import VectorIndex, VectorState

_log = structlog.get_logger(__name__)

_START_TIMEOUT_SECONDS: Final = 20.0
"""The owner starts Chroma before it returns its address."""


class IndexStatus(NamedTuple):
    """The status of the owner's index."""

    state: VectorState
    last_error: str | None
    backoff_seconds: float


class IndexOwnerClient:
    """The owner of the index, seen from the other end of the pipe. Thread-safe; methods raise VectorsUnavailable."""

    def __init__(self, pipe: Pipe, *, timeout_seconds: float = 2.0) -> None:
        self._timeout_seconds = timeout_seconds
        self._pipe = pipe
        self._lock = threading.Lock()
        self._sent = 0

    def address(self) -> str:
        """Return Chroma's address; the owner starts it first if necessary."""
        return str(self._call("address", seconds=_START_TIMEOUT_SECONDS))

    def renew(self, address: str) -> None:
        """Restart Chroma, unless its address has changed: then another process has already done so."""
        self._call("renew", address, seconds=_START_TIMEOUT_SECONDS)

    def require(self, project_ids: Sequence[str]) -> None:
        """Raise the reason why the index cannot answer for these projects, if there is one."""
        self._call("require", tuple(project_ids))

    def request_audit(self) -> None:
        """Have all collections audited, because one was lost."""
        self._call("request_audit")

    def status(self) -> IndexStatus:
        """Return the status of the index."""
        status: IndexStatus = self._call("status")
        return status

    def _call(self, method: str, *arguments: Any, seconds: float | None = None) -> Any:
        seconds = seconds or self._timeout_seconds
        deadline = time.monotonic() + seconds
        if not self._lock.acquire(timeout=seconds):
            raise TimedOut("Timed out waiting for the vector index process.")
        try:
            self._sent += 1
            self._pipe.send((self._sent, method, arguments))
            reply = self._receive(deadline)
        except (OSError, EOFError) as cause:
            raise ChromaConnectionLost("The vector index process has ended.") from cause
        finally:
            self._lock.release()
        if isinstance(reply, VectorsUnavailable):
            raise reply
        return reply

    def _receive(self, deadline: float) -> Any:
        """Wait for the reply to the last call, and skip late replies to earlier ones."""
        while self._pipe.poll(max(0.0, deadline - time.monotonic())):
            number, reply = self._pipe.recv()
            if number == self._sent:
                return reply
        raise TimedOut("The vector index process did not respond in time.")


def serve(index: VectorIndex | None, pipe: Pipe) -> None:
    """Serve calls at the owner's end of a pipe, until the other end is closed."""
    methods = _methods(index) if index else {}
    with suppress(EOFError, OSError), pipe:
        while True:
            number, method, arguments = pipe.recv()
            pipe.send((number, _result(methods[method], arguments)))


def _methods(index: VectorIndex) -> dict[str, Callable[..., Any]]:
    def renew(address: str) -> None:
        if index.server.address() == address:
            index.server.renew()

    return {
        "address": index.server.address,
        "renew": renew,
        "require": index.require,
        "request_audit": index.request_audit,
        "status": lambda: IndexStatus(index.state, index.last_error, index.backoff_seconds),
    }


def _result(method: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    try:
        return method(*arguments)
    except VectorsUnavailable as failure:
        return failure
    except Exception:  # noqa: BLE001 - one failed call must not close the pipe
        _log.exception("keeper_failed")
        return ChromaConnectionLost("The vector index process failed; see its log.")
