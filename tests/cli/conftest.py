"""A data folder with a team `a`, as commands open it."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.caller import Caller, server_owner
from app.cli.root import main
from app.services.identity import teams
from app.store.database import Database
from tests.stores import Stores


@pytest.fixture
def folder(stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The data folder of this test, which every command uses."""
    made = tmp_path / "data"
    made.mkdir()
    monkeypatch.setenv("CMEM_DATA_DIR", str(made))
    monkeypatch.setenv("CMEM_VECTORS", "off")
    for name, value in stores.settings(made).items():
        monkeypatch.setenv(f"CMEM_{name.upper()}", value)
    yield made
    stores.forget(made)


@pytest.fixture
def store(stores: Stores, folder: Path) -> Iterator[Database]:
    """The database of that folder."""
    opened = Database(stores.url(folder))
    yield opened
    opened.close()


@pytest.fixture
def owner(store: Database) -> Caller:
    """The server's owner in the team `a`."""
    with store.write() as connection:
        return server_owner().within(teams.create(connection, server_owner(), name="a", slug="a").id)


@pytest.fixture
def command(folder: Path) -> Callable[..., Result]:
    """Run a command and return its result."""
    return lambda *arguments: CliRunner().invoke(main, [str(argument) for argument in arguments])
