"""A data folder with the team `a`, which commands use."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.caller import Caller, server_owner
from app.cli.root import main
from app.services.identity import teams
from app.store.database import Database
from tests.databases import Databases


@pytest.fixture
def folder(databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The data folder of this test."""
    made = tmp_path / "data"
    made.mkdir()
    monkeypatch.setenv("CMEM_DATA_DIR", str(made))
    monkeypatch.setenv("CMEM_VECTORS", "off")
    for name, value in databases.settings(made).items():
        monkeypatch.setenv(f"CMEM_{name.upper()}", value)
    yield made
    databases.drop(made)


@pytest.fixture
def store(databases: Databases, folder: Path) -> Iterator[Database]:
    """The database in that folder."""
    opened = Database(databases.url(folder))
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
