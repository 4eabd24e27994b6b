"""Private PostgreSQL servers for the tests, from the installed binaries: on a Unix socket, removed at the end."""

import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import psycopg

OWNER = "cmem_owner"
SERVER = "cmem_server"
# tests need not survive a crash of the machine, so commits do not wait for the disk
_NOT_DURABLE = "-c fsync=off -c full_page_writes=off"


def binaries() -> Path | None:
    """Return the folder of the newest installed server, or None."""
    initdb = shutil.which("initdb")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    return folders[-1] if folders else Path(initdb).resolve().parent if initdb else None


@dataclass(frozen=True)
class Cluster:
    """A running server with two roles: one that owns the tables, and one that cmem-server uses."""

    folder: Path
    programs: Path
    options: str = _NOT_DURABLE

    def url(self, role: str, database: str) -> str:
        """Return the URL of a database for `role`."""
        return f"postgresql+psycopg://{role}@/{database}?host={self.folder}"

    def connect(self, role: str = "postgres", database: str = "postgres") -> psycopg.Connection:
        """Return a plain psycopg connection."""
        return psycopg.connect(host=str(self.folder), user=role, dbname=database, autocommit=True)

    def create(self, database: str, template: str = "template0") -> None:
        """Create a database that belongs to the role OWNER."""
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {database} TEMPLATE {template} OWNER {OWNER}".encode())

    def drop(self, database: str) -> None:
        """Drop a database, and disconnect its clients."""
        with self.connect() as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)".encode())

    def restart(self) -> None:
        """Restart the server without waiting for its clients to disconnect."""
        self.run("pg_ctl", "-D", self.data, "-m", "fast", "-w", "restart", "-l", self.folder / "log")

    def start(self) -> None:
        """Start the server and wait until it answers."""
        common = f"-c max_connections=300 -c shared_buffers=256MB -c listen_addresses='' -k {self.folder}"
        options = f"{self.options} {common}"
        self.run("pg_ctl", "-D", self.data, "-w", "start", "-o", options, "-l", self.folder / "log")

    def stop(self) -> None:
        """Stop the server immediately."""
        self.run("pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop")

    @contextmanager
    def standby(self) -> Iterator["Cluster"]:
        """Run a read-only replica of this server."""
        with _folder() as folder:
            replica = Cluster(folder, self.programs)
            self.run("pg_basebackup", "-h", self.folder, "-U", "postgres", "-D", replica.data, "-R", "-c", "fast")
            replica.start()
            try:
                yield replica
            finally:
                replica.stop()

    @property
    def data(self) -> Path:
        """The server's data folder."""
        return self.folder / "data"

    def run(self, program: str, *arguments: object) -> None:
        """Run one of PostgreSQL's programs, as another user when this one is root, which the server rejects."""
        command = [str(self.programs / program), *map(str, arguments)]
        user = _user().pw_uid if os.geteuid() == 0 else None
        subprocess.run(command, check=True, user=user, cwd=self.folder, stdout=subprocess.DEVNULL, timeout=60)


def _user() -> pwd.struct_passwd:
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


@contextmanager
def running(programs: Path, *, durable: bool = False) -> Iterator[Cluster]:
    """Start a server in a temporary folder. A durable one waits for the disk at each commit, as in production."""
    with _folder() as folder:
        cluster = Cluster(folder, programs, "" if durable else _NOT_DURABLE)
        cluster.run("initdb", "-D", cluster.data, "-U", "postgres", "--auth=trust", "-E", "UTF8", "--locale=C", "-N")
        cluster.start()
        try:
            with cluster.connect() as connection:
                for role in (OWNER, SERVER):
                    connection.execute(f"CREATE ROLE {role} LOGIN".encode())
            yield cluster
        finally:
            cluster.stop()


@contextmanager
def _folder() -> Iterator[Path]:
    """Yield a folder writable by the server's user; its path is short, because a socket's is limited to 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(folder, _user().pw_uid, _user().pw_gid)
        yield folder
