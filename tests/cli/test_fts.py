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
from tests.store import damage, raw_writer
from tests.store.raw_writer import RawWriter
from tests.stores import Stores

Command = Callable[..., Result]


@pytest.fixture
def library(store: Database, owner: Caller) -> None:
    """Some memories."""
    with store.write() as connection:
        project = projects.create(connection, owner, name="a1")
        for number in range(5):
            new = memories.NewMemory(
                project_id=project.id, kind="manual", type="manual", text=f"{damage.WORD} keeper {number}"
            )
            memories.add(connection, owner, new)


def test_a_whole_index_checks_clean(command: Command, library: None):
    """Exit 0."""
    checked = command("fts", "check", "--json")

    assert (checked.exit_code, json.loads(checked.output)) == (0, {"ok": True})


@pytest.mark.parametrize(
    "harm",
    [damage.dropped_trigger, damage.missed_changes, pytest.param(damage.deleted_index, marks=pytest.mark.sqlite)],
)
def test_drift_is_found_and_mended(
    command: Command, stores: Stores, folder: Path, library: None, harm: Callable[[RawWriter], None]
):
    """The check exits 1 until a rebuild, which says how many it indexed; then it exits 0."""
    with closing(raw_writer.opened(stores.owner_url(folder))) as raw:
        harm(raw)

    codes = [command("fts", "check").exit_code]
    rebuilt = command("fts", "rebuild", "--json")
    codes.append(command("fts", "check").exit_code)

    assert (codes, json.loads(rebuilt.output)) == ([1, 0], {"indexed": 5})
    assert command("db", "check").exit_code == 0
