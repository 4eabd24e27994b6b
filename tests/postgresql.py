"""A PostgreSQL cluster of the tests' own, from the system's binaries: on a private socket, gone when they end."""

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
# a crash of the machine may lose what tests wrote; commits need not wait for the disk
_QUICK = "-c fsync=off -c full_page_writes=off"


def binaries() -> Path | None:
    """Return the folder of the newest installed server, or None."""
    found = shutil.which("initdb")
    folders = sorted(Path("/usr/lib/postgresql").glob("*/bin"), key=lambda folder: int(folder.parent.name))
    return folders[-1] if folders else Path(found).resolve().parent if found else None


@dataclass(frozen=True)
class Cluster:
    """A running server with the two roles: the one that owns the tables, and the one that cmem-server uses."""

    folder: Path
    programs: Path
    options: str = _QUICK

    def url(self, role: str, database: str) -> str:
        """Return the address of a database, as `role`."""
        return f"postgresql+psycopg://{role}@/{database}?host={self.folder}"

    def connect(self, role: str = "postgres", database: str = "postgres") -> psycopg.Connection:
        """Return a plain connection of psycopg."""
        return psycopg.connect(host=str(self.folder), user=role, dbname=database, autocommit=True)

    def create(self, database: str, template: str = "template0") -> None:
        """Make a database that the owner's role owns."""
        with self.connect() as connection:
            connection.execute(f"CREATE DATABASE {database} TEMPLATE {template} OWNER {OWNER}".encode())

    def drop(self, database: str) -> None:
        """Drop a database with whoever is connected to it."""
        with self.connect() as connection:
            connection.execute(f"DROP DATABASE IF EXISTS {database} WITH (FORCE)".encode())

    def restart(self) -> None:
        """Stop the server as an operator in a hurry would, and start it again."""
        self.run("pg_ctl", "-D", self.data, "-m", "fast", "-w", "restart", "-l", self.folder / "log")

    def start(self) -> None:
        """Start the server and wait until it answers."""
        common = f"-c max_connections=300 -c shared_buffers=256MB -c listen_addresses='' -k {self.folder}"
        options = f"{self.options} {common}"
        self.run("pg_ctl", "-D", self.data, "-w", "start", "-o", options, "-l", self.folder / "log")

    def stop(self) -> None:
        """Stop the server at once."""
        self.run("pg_ctl", "-D", self.data, "-m", "immediate", "-w", "stop")

    @contextmanager
    def standby(self) -> Iterator["Cluster"]:
        """Run a second server, which follows this one and takes no writes."""
        with _folder() as folder:
            follower = Cluster(folder, self.programs)
            self.run("pg_basebackup", "-h", self.folder, "-U", "postgres", "-D", follower.data, "-R", "-c", "fast")
            follower.start()
            try:
                yield follower
            finally:
                follower.stop()

    @property
    def data(self) -> Path:
        """The server's data folder."""
        return self.folder / "data"

    def run(self, program: str, *arguments: object) -> None:
        """Run one of PostgreSQL's programs as the user that may: the server refuses to run as root."""
        command = [str(self.programs / program), *map(str, arguments)]
        user = _user().pw_uid if os.geteuid() == 0 else None
        subprocess.run(command, check=True, user=user, cwd=self.folder, stdout=subprocess.DEVNULL, timeout=60)


def _user() -> pwd.struct_passwd:
    names = {entry.pw_name: entry for entry in pwd.getpwall()}
    return names.get("postgres") or names["nobody"]


@contextmanager
def running(programs: Path, *, durable: bool = False) -> Iterator[Cluster]:
    """Start a cluster in a folder of its own. A durable one keeps what it acknowledged, as those in use do."""
    with _folder() as folder:
        cluster = Cluster(folder, programs, "" if durable else _QUICK)
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
    """Yield a folder that the server's user may write; the path is short, since a socket's may have 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="pg", dir="/tmp") as name:
        folder = Path(name)
        folder.chmod(0o755)
        if os.geteuid() == 0:
            os.chown(folder, _user().pw_uid, _user().pw_gid)
        yield folder
