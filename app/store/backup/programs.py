"""Runs PostgreSQL's own client programs, wherever they are installed.

They get the address of the database through their environment, because every user of the machine can read a command
line.
"""

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final

from psycopg import pq
from sqlalchemy import make_url

from app.store.backup import BackupError
from app.store.engines.rls_context import EVERY_TEAM

INSTALLED: Final = "/usr/lib/postgresql"
"""Where Debian's packages put the programs of each version, outside PATH."""
_CONNECT_TIMEOUT_SECONDS: Final = 10


def find_program(name: str, *, server: int = 0) -> str:
    """Return the path of the newest program of this name; BackupError when all are older than the server."""
    versions = {path: _version(path) for path in _candidates(name)}
    remedy = f"install PostgreSQL's client programs{f' of version {server} or newer' if server else ''}"
    if not versions:
        raise BackupError(f"{name} is not installed: {remedy}.")
    newest = max(versions, key=lambda path: versions[path])
    if versions[newest] < server:
        raise BackupError(f"{name} has version {versions[newest]}, but the server has {server}: {remedy}.")
    return newest


def environment(url: str) -> dict[str, str]:
    """Return the environment in which a program connects to the database and sees every team's rows there."""
    address = make_url(url)
    _, arguments = address.get_dialect()().create_connect_args(address)
    variables = {
        option.keyword.decode(): option.envvar.decode() for option in pq.Conninfo.get_defaults() if option.envvar
    }
    settings = {variables[name]: str(value) for name, value in arguments.items() if name in variables}
    options = settings.get("PGOPTIONS", os.environ.get("PGOPTIONS", ""))
    return {
        "PGCONNECT_TIMEOUT": str(_CONNECT_TIMEOUT_SECONDS),
        **os.environ,
        **settings,
        "PGOPTIONS": f"{options} -c cmem.team_id={EVERY_TEAM}",
        "LC_ALL": "C",
    }


@contextmanager
def stream_output(command: Sequence[str], env: dict[str, str] | None = None) -> Iterator[IO[bytes]]:
    """Yield a program's standard output, to be read to its end; BackupError with its error text when it fails."""
    with (
        tempfile.TemporaryFile() as errors,
        _running(command, env, stdout=subprocess.PIPE, stderr=errors) as process,
    ):
        yield _pipe(process.stdout)
        process.communicate()  # discard the rest, so that the program can end
        errors.seek(0)
        _require_success(command, process.returncode, errors.read())


def run(command: Sequence[str], env: dict[str, str], on_line: Callable[[bytes], None]) -> None:
    """Run a program and pass on each line of its error output; BackupError with its error text when it fails."""
    with _running(command, env, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        lines = []
        for line in _pipe(process.stderr):
            lines.append(line)
            on_line(line)
        _require_success(command, process.wait(), b"".join(lines))


@contextmanager
def _running(command: Sequence[str], env: dict[str, str] | None, **streams: Any) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that cannot prompt for input; it is killed when the block ends."""
    with subprocess.Popen(command, env=env, stdin=subprocess.DEVNULL, **streams) as process:  # noqa: S603 - ours
        try:
            yield process
        finally:
            process.kill()


def _require_success(command: Sequence[str], code: int, errors: bytes) -> None:
    if code:
        text = errors.decode(errors="replace")
        reasons = re.findall(r"error: (.+)", text) or text.strip().splitlines() or [f"exit code {code}"]
        raise BackupError(f"{Path(command[0]).name} failed: {reasons[0]}")


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # noqa: S101 - Popen was called with PIPE
    return stream


def _candidates(name: str) -> list[str]:
    installed = sorted(map(str, Path(INSTALLED).glob(f"*/bin/{name}")))
    return installed + [path for path in [shutil.which(name)] if path is not None]


def _version(path: str) -> int:
    """Return the major version that a program reports, or 0."""
    with stream_output([path, "--version"]) as output:
        version = re.search(rb"\) (\d+)", output.read())
    return int(version.group(1)) if version else 0
