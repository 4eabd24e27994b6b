"""What benchmarks share: servers in their own processes, databases to run them on, and the table of results."""

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from app.caller import EVERYTHING, Caller, server_owner
from app.services.identity import credentials, keys, teams
from app.services.projects import projects
from app.store.database import Database
from app.store.schema import migrations

START_TIMEOUT_SECONDS = 30


@dataclass(frozen=True)
class Row:
    """One row of the table: what was measured, its floor in the same run, their ratio, and the target for it."""

    what: str
    measured: str
    floor: str
    ratio: float
    target: str


@dataclass(frozen=True)
class Running:
    """A server process."""

    url: str
    process: subprocess.Popen[str]

    def memory_mib(self) -> float:
        """Return its resident memory in MiB."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        resident = re.search(r"VmRSS:\s+(\d+)", status)
        return int(resident.group(1)) / 1024 if resident else float("nan")


@dataclass(frozen=True)
class Store:
    """The database of a benchmark, with a team, a project and a key."""

    folder: Path
    database: Database
    caller: Caller
    project_id: str
    api_key: str

    @property
    def settings(self) -> dict[str, str]:
        """The settings for a server to use this database."""
        return {} if self.database.dialect == "sqlite" else {"CMEM_DATABASE_URL": self.database.url}


def prepared(folder: Path, url: str | None = None) -> Store:
    """Create a database in `folder`, or use the migrated one at `url`."""
    if url is None:
        url = f"sqlite:///{folder / 'cmem.db'}"
        migrations.upgrade(url)
    database = Database(url)
    minted = credentials.mint()
    secret_hash = credentials.hash_secret(minted.secret)
    with database.write() as connection:
        caller = server_owner().within(teams.create(connection, server_owner(), name="bench").id)
        project = projects.create(connection, caller, name="bench")
        keys.create(connection, caller, keys.NewKey(scopes=(EVERYTHING,)), minted, secret_hash)
    return Store(folder, database, caller, project.id, credentials.format_key(minted))


@contextmanager
def serving(folder: Path, **settings: str) -> Iterator[Running]:
    """Run the server on a data folder."""
    environment = {"CMEM_DATA_DIR": str(folder), "CMEM_VECTORS": "off", "CMEM_LOG_LEVEL": "WARNING", **settings}
    with process([sys.executable, "-m", "app", "serve", "--port", "0"], {**os.environ, **environment}) as running:
        yield running


@contextmanager
def process(command: Sequence[str], environment: dict[str, str] | None = None) -> Iterator[Running]:
    """Run a server that prints its address; stop it, and only it, afterwards."""
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, start_new_session=True
    ) as started:
        try:
            yield Running(_address(started), started)
        finally:
            started.send_signal(signal.SIGTERM)
            try:
                started.wait(timeout=20)
            except subprocess.TimeoutExpired:
                started.kill()


def _address(started: subprocess.Popen[str]) -> str:
    assert started.stdout is not None
    for line in started.stdout:
        if match := re.search(r"http://127\.0\.0\.1:\d+", line):
            return match.group()
    raise RuntimeError("the server did not print its address")


def table(title: str, rows: Sequence[Row]) -> str:
    """Return the rows as aligned text."""
    lines = [("what", "measured", "floor", "ratio", "target")]
    lines += [(row.what, row.measured, row.floor, f"{row.ratio:.2f}", row.target) for row in rows]
    return grid(title, lines)


def grid(title: str, lines: Sequence[tuple[str, ...]]) -> str:
    """Return rows of cells, the first of which is the header, as aligned text."""
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    text = ["  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines]
    return "\n".join([title, "", text[0], "  ".join("-" * width for width in widths), *text[1:], ""])
