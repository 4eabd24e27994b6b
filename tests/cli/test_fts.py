"""`fts`: check and rebuild, as scripts use them."""

import json
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result

from app.caller import Caller
from app.services.memories import memories
from app.services.projects import projects
from app.store.database import Database
from tests.databases import Databases
from tests.store import corruption, raw_writer
from tests.store.raw_writer import RawWriter

Command = Callable[..., Result]


@pytest.fixture
def library(store: Database, owner: Caller) -> None:
    """Some memories."""
    with store.write() as connection:
        project = projects.create(connection, owner, name="a1")
        for number in range(5):
            new = memories.NewMemory(
                project_id=project.id, kind="manual", type="manual", text=f"{corruption.WORD} keeper {number}"
            )
            memories.add(connection, owner, new)


def test_an_intact_index_passes_the_check(command: Command, library: None):
    """Exit 0."""
    checked = command("fts", "check", "--json")

    assert (checked.exit_code, json.loads(checked.output)) == (0, {"ok": True})


@pytest.mark.parametrize(
    "harm",
    [
        corruption.dropped_trigger,
        corruption.missed_changes,
        pytest.param(corruption.deleted_index, marks=pytest.mark.sqlite),
    ],
)
def test_drift_is_found_and_repaired(
    command: Command, databases: Databases, folder: Path, library: None, harm: Callable[[RawWriter], None]
):
    """The check exits 1 until a rebuild, which prints how many memories it indexed; then it exits 0."""
    with closing(raw_writer.connect(databases.owner_url(folder))) as raw:
        harm(raw)

    codes = [command("fts", "check").exit_code]
    rebuilt = command("fts", "rebuild", "--json")
    codes.append(command("fts", "check").exit_code)

    assert (codes, json.loads(rebuilt.output)) == ([1, 0], {"indexed": 5})
    assert command("db", "check").exit_code == 0
