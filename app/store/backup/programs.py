"""PostgreSQL's own programs: found where they are installed, and told in their environment where the database is.

Nothing of an address stands on a command line, where every user of the machine could read it.
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
"""Where Debian's packages put the programs of each version, outside of PATH."""
_CONNECT_TIMEOUT_SECONDS: Final = 10


def program(name: str, *, server: int = 0) -> str:
    """Return the path of the newest program of this name; BackupError when none is as new as the server."""
    found = {path: _version(path) for path in _candidates(name)}
    wanted = f"install PostgreSQL's client programs{f' of version {server} or newer' if server else ''}"
    if not found:
        raise BackupError(f"{name} is not installed: {wanted}.")
    newest = max(found, key=lambda path: found[path])
    if found[newest] < server:
        raise BackupError(f"{name} is of version {found[newest]}, the server of {server}: {wanted}.")
    return newest


def environment(url: str) -> dict[str, str]:
    """Return the environment in which a program reaches the database, and sees every team's rows there."""
    address = make_url(url)
    _, given = address.get_dialect()().create_connect_args(address)
    variables = {
        option.keyword.decode(): option.envvar.decode() for option in pq.Conninfo.get_defaults() if option.envvar
    }
    told = {variables[name]: str(value) for name, value in given.items() if name in variables}
    options = told.get("PGOPTIONS", os.environ.get("PGOPTIONS", ""))
    return {
        "PGCONNECT_TIMEOUT": str(_CONNECT_TIMEOUT_SECONDS),
        **os.environ,
        **told,
        "PGOPTIONS": f"{options} -c cmem.team_id={EVERY_TEAM}",
        "LC_ALL": "C",
    }


@contextmanager
def printed(command: Sequence[str], surroundings: dict[str, str] | None = None) -> Iterator[IO[bytes]]:
    """Yield what a program prints, to be read to its end; BackupError with its own words when it fails."""
    with (
        tempfile.TemporaryFile() as said,
        _running(command, surroundings, stdout=subprocess.PIPE, stderr=said) as process,
    ):
        yield _pipe(process.stdout)
        process.communicate()  # it ends; what was not read is of no use to anybody
        said.seek(0)
        _require_success(command, process.returncode, said.read())


def run(command: Sequence[str], surroundings: dict[str, str], told: Callable[[bytes], None]) -> None:
    """Run a program to its end, telling each line that it says; BackupError with its own words when it fails."""
    with _running(command, surroundings, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE) as process:
        said = []
        for line in _pipe(process.stderr):
            said.append(line)
            told(line)
        _require_success(command, process.wait(), b"".join(said))


@contextmanager
def _running(
    command: Sequence[str], surroundings: dict[str, str] | None, **streams: Any
) -> Iterator[subprocess.Popen[bytes]]:
    """Start a program that asks nobody anything; it does not outlive the block."""
    with subprocess.Popen(command, env=surroundings, stdin=subprocess.DEVNULL, **streams) as process:  # noqa: S603 - ours
        try:
            yield process
        finally:
            process.kill()


def _require_success(command: Sequence[str], code: int, said: bytes) -> None:
    if code:
        text = said.decode(errors="replace")
        reasons = re.findall(r"error: (.+)", text) or text.strip().splitlines() or [f"exit code {code}"]
        raise BackupError(f"{Path(command[0]).name} failed: {reasons[0]}")


def _pipe(stream: IO[bytes] | None) -> IO[bytes]:
    assert stream is not None  # noqa: S101 - a pipe was asked for
    return stream


def _candidates(name: str) -> list[str]:
    installed = sorted(map(str, Path(INSTALLED).glob(f"*/bin/{name}")))
    return installed + [path for path in [shutil.which(name)] if path is not None]


def _version(path: str) -> int:
    """Return the major version that a program says it has."""
    with printed([path, "--version"]) as said:
        found = re.search(rb"\) (\d+)", said.read())
    return int(found.group(1)) if found else 0
