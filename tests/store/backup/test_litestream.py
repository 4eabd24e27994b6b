"""The documented replication, with the real program: what was acknowledged comes back on another machine."""

import os
import signal
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import pytest

from app.services.operations import fulltext_check
from app.store.database import Database
from tests import ROOT
from tests.conftest import Server, Tenant

PROGRAM = Path(sys.executable).with_name("litestream")
COUNT = "SELECT count(*) FROM memory_items WHERE team_id = ?"
CONFIG = ROOT / "docker" / "litestream.yml"


@pytest.mark.sqlite
def test_replica_restores_all_acknowledged_writes(server: Server, team: Tenant, tmp_path: Path):
    """They were written during replication, to a running server."""
    replica = tmp_path / "replica"
    env = {
        **os.environ,
        "CMEM_DATA_DIR": str(server.settings.data_dir),
        "CMEM_REPLICA_URL": f"file://{replica}",
    }
    replicating = subprocess.Popen(
        [PROGRAM, "replicate", "-config", CONFIG], env=env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        for number in range(50):
            assert team.post_memory(content=f"replicated {number}").status_code == 201
        wait_until_quiet(replica)
    finally:
        replicating.send_signal(signal.SIGTERM)
        replicating.wait(timeout=20)
    restored = tmp_path / "elsewhere" / "cmem.db"
    command = [PROGRAM, "restore", "-o", str(restored), f"file://{replica}"]
    assert subprocess.run(command, env=env, capture_output=True).returncode == 0

    with closing(Database(f"sqlite:///{restored}")) as database:
        assert fulltext_check.faults(database) == []
        with database.read() as connection:
            assert connection.exec_driver_sql(COUNT, (team.team_id,)).scalar_one() == 50


def wait_until_quiet(folder: Path) -> None:
    """Wait until the replica has grown, and then not changed for two of its intervals."""
    deadline, seen, since = time.monotonic() + 30, 0, time.monotonic()
    while time.monotonic() < deadline:
        size = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
        if size != seen:
            seen, since = size, time.monotonic()
        elif seen and time.monotonic() - since > 2.5:
            return
        time.sleep(0.1)
    raise AssertionError("the replica did not stop changing")
