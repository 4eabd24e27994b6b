"""The two PostgreSQL roles, created on a real server by the scripts that an operator and the image run."""

import os
import re
import shutil
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.docker import FOLDER

pytestmark = pytest.mark.process

PROGRAMS = sorted(Path("/usr/lib/postgresql").glob("*/bin"))
WHO = {"user": "postgres", "group": "postgres", "extra_groups": []} if os.geteuid() == 0 else {}
"""PostgreSQL refuses to run as root."""
NAMES = {"database_url", "database_admin_url", "postgres_password", "jwt_secret"}


def made(folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run([FOLDER / "make-secrets", folder], capture_output=True, text=True, check=False)


def test_secrets_are_generated_once(tmp_path: Path):
    """Readable for the users of containers, in a folder that other users of the machine cannot enter."""
    folder = tmp_path / "secrets"
    first = made(folder)
    texts = {path.name: path.read_text() for path in folder.iterdir()}
    again = made(folder)

    assert (first.returncode, again.returncode != 0) == (0, True)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o644}
    assert texts.keys() == NAMES
    assert {path.name: path.read_text() for path in folder.iterdir()} == texts
    assert len(set(re.findall(r"[0-9a-f]{64}", "".join(texts[name] + "\n" for name in NAMES)))) == len(NAMES)


@dataclass(frozen=True)
class Server:
    """A PostgreSQL server that was prepared by the image's script."""

    folder: Path
    port: int

    def ask(self, secret: str, sql: str) -> subprocess.CompletedProcess[str]:
        """Run a statement as the role of one of the two URLs."""
        url = (self.folder / "secrets" / secret).read_text().strip().replace("+psycopg", "")
        url = url.replace("@postgres:5432/", f"@127.0.0.1:{self.port}/")
        command = [PROGRAMS[-1] / "psql", "-XAt", "-d", url, "-c", sql]
        return subprocess.run(command, capture_output=True, text=True, timeout=30, check=False)


@pytest.fixture
def prepared() -> Iterator[Server]:
    """Prepared as the image does it, with the script that runs at the first start."""
    if not PROGRAMS:
        pytest.skip("PostgreSQL is not installed here")
    folder = Path(tempfile.mkdtemp(prefix="cmem-postgres-"))
    made(folder / "secrets")
    if WHO:
        shutil.chown(folder, "postgres")
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    control = [PROGRAMS[-1] / "pg_ctl", "-D", folder / "data", "-w", "-l", folder / "log"]
    initialise = [PROGRAMS[-1] / "initdb", "-D", folder / "data", "-U", "postgres", "--auth-local=trust"]
    try:
        for command in (
            [*initialise, "--auth-host=scram-sha-256"],
            [*control, "-o", f"-p {port} -k {folder} -h 127.0.0.1", "start"],
        ):
            subprocess.run(command, cwd=folder, stdout=subprocess.DEVNULL, check=True, timeout=60, **WHO)
        given = {
            "PATH": f"{PROGRAMS[-1]}:{os.environ['PATH']}",
            "PGHOST": str(folder),
            "PGPORT": str(port),
            "SECRETS": str(folder / "secrets"),
        }
        subprocess.run([FOLDER / "postgres-init"], env=given, stdout=subprocess.DEVNULL, check=True, timeout=60)
        yield Server(folder, port)
    finally:
        subprocess.run([*control, "-m", "immediate", "stop"], cwd=folder, stdout=subprocess.DEVNULL, **WHO)
        shutil.rmtree(folder)


def test_one_role_owns_and_the_other_may_only_connect(prepared: Server):
    """The owner can create tables and the extension; the server cannot read a table before it is granted."""
    made_by_owner = prepared.ask("database_admin_url", "CREATE EXTENSION btree_gin; CREATE TABLE kept (id int)")
    made_by_server = prepared.ask("database_url", "CREATE TABLE own (id int)")
    read_by_server = prepared.ask("database_url", "SELECT * FROM kept")
    who = prepared.ask(
        "database_url", "SELECT current_user, rolsuper, rolbypassrls FROM pg_roles WHERE rolname = current_user"
    )

    assert made_by_owner.returncode == 0, made_by_owner.stderr
    assert "permission denied for schema public" in made_by_server.stderr
    assert "permission denied for table kept" in read_by_server.stderr
    assert who.stdout.strip() == "cmem_server|f|f"
