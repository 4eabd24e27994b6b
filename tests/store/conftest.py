"""Two teams as a plain writer sees them: team a with projects a1 and a2, team b with project b1."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.store.database import Database
from tests.store import raw_writer
from tests.store.raw_writer import RawWriter
from tests.stores import Stores


@pytest.fixture
def raw(request: pytest.FixtureRequest, stores: Stores, database: Database, tmp_path: Path) -> Iterator[RawWriter]:
    """A plain writer in a database with two teams; with the rights of the owner, unless the server's are asked for."""
    is_server = getattr(request, "param", "owner") == "server"
    with closing(raw_writer.opened(stores.url(tmp_path) if is_server else stores.owner_url(tmp_path))) as writer:
        for team, projects in {"a": ("a1", "a2"), "b": ("b1",)}.items():
            writer.insert("teams", id=team)
            for project in projects:
                writer.insert("projects", id=project, team_id=team)
                writer.insert("server_sessions", id=f"session of {project}", team_id=team, project_id=project)
        yield writer
