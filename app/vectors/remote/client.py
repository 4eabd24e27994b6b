"""One process keeps the index in step, others ask it: where Chroma answers, and what cannot be answered for.

A line joins the two. It carries our own objects between our own processes, and ends with either of them.
"""

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from multiprocessing.connection import Connection as Line
from typing import Any, Final, NamedTuple

import structlog

from app.vectors.errors import ConnectionLost, TimedOut, VectorsUnavailable
from app.vectors.index import VectorIndex, VectorState

_log = structlog.get_logger(__name__)

_START_PATIENCE_SECONDS: Final = 20.0
"""The keeper starts Chroma before it says where it answers."""


class Standing(NamedTuple):
    """How the keeper's index stands."""

    state: VectorState
    last_error: str | None
    backoff_seconds: float


class Keeper:
    """The keeper, as seen from the other end of the line. Safe from any thread; raises VectorsUnavailable."""

    def __init__(self, line: Line, *, patience_seconds: float = 2.0) -> None:
        self._patience_seconds = patience_seconds
        self._line = line
        self._turn = threading.Lock()
        self._asked = 0

    def address(self) -> str:
        """Return where Chroma answers, started first if need be."""
        return str(self._ask("address", seconds=_START_PATIENCE_SECONDS))

    def renew(self, address: str) -> None:
        """Have Chroma started afresh, unless it answers elsewhere by now: then somebody else has asked before."""
        self._ask("renew", address, seconds=_START_PATIENCE_SECONDS)

    def require(self, project_ids: Sequence[str]) -> None:
        """Raise what keeps the index from answering for these projects."""
        self._ask("require", tuple(project_ids))

    def look_around_soon(self) -> None:
        """Have all collections looked through: one was lost."""
        self._ask("look_around_soon")

    def standing(self) -> Standing:
        """Return how the index stands."""
        standing: Standing = self._ask("standing")
        return standing

    def _ask(self, verb: str, *arguments: Any, seconds: float | None = None) -> Any:
        seconds = seconds or self._patience_seconds
        deadline = time.monotonic() + seconds
        if not self._turn.acquire(timeout=seconds):
            raise TimedOut("The keeper of the vector index is asked by others, and that takes long.")
        try:
            self._asked += 1
            self._line.send((self._asked, verb, arguments))
            answer = self._answer(deadline)
        except (OSError, EOFError) as cause:
            raise ConnectionLost("The keeper of the vector index is gone.") from cause
        finally:
            self._turn.release()
        if isinstance(answer, VectorsUnavailable):
            raise answer
        return answer

    def _answer(self, deadline: float) -> Any:
        """Wait for the answer to the last question; those to earlier ones came too late."""
        while self._line.poll(max(0.0, deadline - time.monotonic())):
            number, answer = self._line.recv()
            if number == self._asked:
                return answer
        raise TimedOut("The keeper of the vector index did not answer in time.")


def answer(index: VectorIndex | None, line: Line) -> None:
    """Answer at the keeper's end of a line, until nobody is at the other one."""
    verbs = _verbs(index) if index else {}
    with suppress(EOFError, OSError), line:
        while True:
            number, verb, arguments = line.recv()
            line.send((number, _outcome(verbs[verb], arguments)))


def _verbs(index: VectorIndex) -> dict[str, Callable[..., Any]]:
    def renew(address: str) -> None:
        if index.server.address() == address:
            index.server.renew()

    return {
        "address": index.server.address,
        "renew": renew,
        "require": index.require,
        "look_around_soon": index.look_around_soon,
        "standing": lambda: Standing(index.state, index.last_error, index.backoff_seconds),
    }


def _outcome(verb: Callable[..., Any], arguments: Sequence[Any]) -> Any:
    try:
        return verb(*arguments)
    except VectorsUnavailable as failure:
        return failure
    except Exception:  # noqa: BLE001 - one failed answer must not end the line
        _log.exception("keeper_failed")
        return ConnectionLost("The keeper of the vector index failed.")
