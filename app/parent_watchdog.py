"""Ends a child process when its parent is gone: the child's standard input closes, however the parent dies."""

import os
import signal
import threading
import time


def end_with_parent(*, grace_seconds: float) -> None:
    """Watch the parent in the background. Once it is gone, send SIGTERM to this process, and end it after the grace."""
    threading.Thread(target=_watch, args=(grace_seconds,), daemon=True).start()


def _watch(grace_seconds: float) -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(grace_seconds)
    os._exit(1)
