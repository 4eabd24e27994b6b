"""`maintenance run` as a person and as a script use it."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from app.caller import Caller
from app.services.memories import memories
from app.services.projects import projects
from app.store.database import Database
from tests.databases import Databases
from tests.services.operations.test_maintenance import holding
from tests.serving import serving

Command = Callable[..., Result]
pytestmark = pytest.mark.sqlite
MARKER = "xylophonemarkerword"


@pytest.fixture
def memory_id(store: Database, owner: Caller) -> str:
    """A memory that contains the marker."""
    with store.write() as connection:
        project_id = projects.create(connection, owner, name="p").id
        new = memories.NewMemory(project_id=project_id, kind="manual", type="manual", text=f"the {MARKER} of old")
        return memories.add(connection, owner, new).memory.id


@pytest.mark.sqlite
def test_deleted_text_is_in_no_file_of_the_data_folder(
    command: Command, store: Database, owner: Caller, memory_id: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """Nor in the vector index, which stays intact."""
    monkeypatch.setenv("CMEM_VECTORS", "embedded")
    command("vectors", "backfill")
    with store.write() as connection:
        memories.remove(connection, owner, memory_id, precondition=lambda _: True)
    command("vectors", "backfill")
    store.close()

    report = json.loads(command("maintenance", "run", "--json").stdout)

    assert (report["vectorsVacuumed"], report["logEmptied"]) == (True, True)
    assert holding(folder, MARKER) == []
    assert command("doctor").exit_code == 0


def test_it_runs_next_to_a_server(
    command: Command, store: Database, databases: Databases, owner: Caller, memory_id: str, folder: Path
):
    """The server keeps serving, and its vectors are left to it."""
    with serving(folder, **databases.settings(folder)):
        with store.write() as connection:
            memories.remove(connection, owner, memory_id, precondition=lambda _: True)
        assert json.loads(command("maintenance", "run", "--json").stdout)["vectorsVacuumed"] is False

        assert holding(folder, MARKER) == []
