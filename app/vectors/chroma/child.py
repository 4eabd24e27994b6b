"""The child process that serves an embedded Chroma folder: `python -m app.vectors.chroma.child CONFIG`.

It lives as long as its standard input is open. The parent holds the other end, so the child ends with it however the
parent dies. (A parent-death signal would come when the thread that started the child ends.)
"""

import os
import signal
import sys
import threading
import time

import chromadb_rust_bindings

_GRACE_SECONDS = 5.0


def main(config: str) -> None:
    """Serve until the parent is gone or asks to stop."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    chromadb_rust_bindings.cli(["chroma", "run", config])


def _end_with_parent() -> None:
    while os.read(0, 4096):
        pass
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(_GRACE_SECONDS)
    os._exit(1)


if __name__ == "__main__":
    main(sys.argv[1])
