"""The child process that serves an embedded Chroma folder: `python -m app.vectors.chroma.child CONFIG`.

It runs as long as its standard input is open. The parent holds the other end, so the child ends with the parent however
that dies. (A parent-death signal would already be sent when the thread that started the child ends.)
"""

import sys

import chromadb_rust_bindings

from app import parent_watchdog

_GRACE_SECONDS = 5.0


def main(config: str) -> None:
    """Serve until the parent is gone or sends a signal."""
    parent_watchdog.end_with_parent(grace_seconds=_GRACE_SECONDS)
    chromadb_rust_bindings.cli(["chroma", "run", config])


if __name__ == "__main__":
    main(sys.argv[1])
