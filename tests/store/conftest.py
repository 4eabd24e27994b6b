"""A database with two teams: team a with projects a1 and a2, team b with project b1."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.store.database import Database
from tests.databases import Databases
from tests.store import raw_writer
from tests.store.raw_writer import RawWriter


@pytest.fixture
def raw(
    request: pytest.FixtureRequest, databases: Databases, database: Database, tmp_path: Path
) -> Iterator[RawWriter]:
    """A raw writer to a database with two teams; as the owner's role, unless the parameter is "server"."""
    is_server = getattr(request, "param", "owner") == "server"
    with closing(raw_writer.connect(databases.url(tmp_path) if is_server else databases.owner_url(tmp_path))) as writer:
        for team, projects in {"a": ("a1", "a2"), "b": ("b1",)}.items():
            writer.insert("teams", id=team)
            for project in projects:
                writer.insert("projects", id=project, team_id=team)
                writer.insert("server_sessions", id=f"session of {project}", team_id=team, project_id=project)
        yield writer
