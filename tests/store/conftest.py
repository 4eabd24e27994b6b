"""Two teams as a plain sqlite3 writer sees them: team a with projects a1 and a2, team b with project b1."""

from collections.abc import Iterator

import pytest

from app.store.database import Database
from tests.store.raw_writer import RawWriter


@pytest.fixture
def raw(database: Database) -> Iterator[RawWriter]:
    """A plain sqlite3 writer with foreign keys off, in a database with two teams."""
    writer = RawWriter(database.path)
    for team, projects in {"a": ("a1", "a2"), "b": ("b1",)}.items():
        writer.insert("teams", id=team)
        for project in projects:
            writer.insert("projects", id=project, team_id=team)
            writer.insert("server_sessions", id=f"session of {project}", team_id=team, project_id=project)
    yield writer
    writer.close()
