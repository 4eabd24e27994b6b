"""A data folder with a team `a`, as commands open it."""

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from app.caller import Caller, server_owner
from app.cli.root import main
from app.services import teams
from app.store.database import Database


@pytest.fixture
def folder(template: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The data folder of this test, which every command uses."""
    made = tmp_path / "data"
    made.mkdir()
    shutil.copy(template, made / "cmem.db")
    monkeypatch.setenv("CMEM_DATA_DIR", str(made))
    monkeypatch.setenv("CMEM_VECTORS", "off")
    return made


@pytest.fixture
def store(folder: Path) -> Iterator[Database]:
    """The database of that folder."""
    opened = Database(f"sqlite:///{folder / 'cmem.db'}")
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
