"""A child process lives as long as its standard input: the parent holds the other end, however it dies."""

import os
import signal
import threading
import time


def end_with_parent(*, grace_seconds: float) -> None:
    """From now on, ask this process to stop once the parent is gone, and end it when that takes longer."""
    threading.Thread(target=_wait, args=(grace_seconds,), daemon=True).start()


def _wait(grace_seconds: float) -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_seconds)
    os._exit(1)
