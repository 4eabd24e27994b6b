"""`fts`, killed and run again."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from click.testing import Result

from app.caller import Caller
from app.services import memories, projects
from app.store.database import Database

ROOT = Path(__file__).parents[2]
DIES_IN_THE_MIDDLE = """
import os
from app.cli.root import main
from app.store.fulltext import rebuilding
rebuilding._SLICE_ROWS = 100
fill = rebuilding._fill_slice
def once(connection, done=[]):
    done.append(1)
    if len(done) == 3:
        os.kill(os.getpid(), 9)
    return fill(connection)
rebuilding._fill_slice = once
main(["fts", "rebuild"])
"""


def test_a_killed_rebuild_leaves_the_old_index_and_the_next_one_ends_well(
    command: Callable[..., Result], store: Database, owner: Caller, folder: Path
):
    """kill -9 between two slices; meanwhile the old index answers, and writing goes on."""
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
        found = connection.exec_driver_sql(
            "SELECT count(*) FROM memory_items_fts WHERE memory_items_fts MATCH 'lighthouse'"
        )
        assert found.scalar_one() == 501
    for _ in range(2):
        assert json.loads(command("fts", "rebuild", "--json").stdout) == {"indexed": 501}
    assert command("db", "check").exit_code == 0
