"""The commands with a clock that runs twenty times slower: a calendar minute is then longer than any test.

`python -m tests.processes.slow_clock START_MS serve …` starts the clock at START_MS. All processes that were given the
same start show the same time. A server knows nothing of this: its clock is replaced before anything imports it.
"""

import os
import sys
import time
from importlib import import_module
from typing import Any, Final

from app import clock

SPEED: Final = 1 / 20
_VARIABLE: Final = "SLOW_CLOCK_START_MS"
"""Passes the start on to the workers of a server."""


def minute_start_ms() -> int:
    """Return when the current minute of the real clock began, in epoch milliseconds."""
    return time.time_ns() // 1_000_000 // 60_000 * 60_000


def replace(start_ms: int) -> None:
    """Replace the clock of this process. Must be called before any other module imports it."""
    real_now_ms = clock.now_ms
    clock.now_ms = lambda: start_ms + int((real_now_ms() - start_ms) * SPEED)


def main(start_ms: str, *arguments: str) -> None:
    """Run a command, and have its workers run with the same clock."""
    os.environ[_VARIABLE] = start_ms
    replace(int(start_ms))
    supervisor: Any = import_module("app.processes.supervisor")
    supervisor.WORKER_MODULE = "tests.processes.slow_clock_worker"
    import_module("app.cli").main(arguments)


def in_worker() -> None:
    """Replace the clock of a worker."""
    replace(int(os.environ[_VARIABLE]))


if __name__ == "__main__":
    main(*sys.argv[1:])
