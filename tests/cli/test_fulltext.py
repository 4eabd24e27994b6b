"""`fts`, killed and run again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from app.caller import Caller
from app.services.memories import memories
from app.services.projects import projects
from app.store.database import Database
from tests import ROOT, inspection

pytestmark = pytest.mark.process

DIES_IN_THE_MIDDLE = """
import os
from app.cli.root import main
from app.services.operations import fulltext_check
from app.store.maintenance import postgresql, sqlite_rebuilding
postgresql._SLICE_ROWS = sqlite_rebuilding._SLICE_ROWS = 100
rebuild = fulltext_check.rebuild_full_text
def until_killed(database, progress):
    return rebuild(database, lambda done: done < 200 or os.kill(os.getpid(), 9))
fulltext_check.rebuild_full_text = until_killed
main(["fts", "rebuild"])
"""


def test_a_killed_rebuild_leaves_the_old_index_and_can_be_repeated(
    command: Callable[..., Result], store: Database, owner: Caller, folder: Path
):
    """kill -9 between two slices: the old index still answers, and writes still work."""
    with store.write() as connection:
        project_id = projects.create(connection, owner, name="p").id
        for number in range(500):
            new = memories.NewMemory(project_id=project_id, kind="manual", type="manual", text=f"lighthouse {number}")
            memories.add(connection, owner, new)
    died = subprocess.run(
        [sys.executable, "-c", DIES_IN_THE_MIDDLE],
        env=os.environ | {"PYTHONPATH": str(ROOT), "CMEM_DATA_DIR": str(folder)},
    )

    assert died.returncode == -signal.SIGKILL
    with store.write() as connection:
        new = memories.NewMemory(project_id=project_id, kind="manual", type="manual", text="lighthouse after the kill")
        memories.add(connection, owner, new)
    assert len(inspection.indexed_seqs(store, "lighthouse")) == 501
    for _ in range(2):
        assert json.loads(command("fts", "rebuild", "--json").stdout) == {"indexed": 501}
    assert command("db", "check").exit_code == 0
