"""A project of a team, and its owner, in a database of the test's own."""

from dataclasses import dataclass
from typing import Any

import pytest

from app.caller import Caller, server_owner
from app.services import memories, projects, teams
from app.store.database import Database
from app.store.records import Memory


@dataclass(frozen=True)
class Place:
    """A project, and who owns its team."""

    database: Database
    caller: Caller
    project_id: str

    def remember(self, text: str, **fields: Any) -> Memory:
        """Store a memory of the project."""
        standard = {"project_id": self.project_id, "kind": "manual", "type": "manual", "text": text}
        with self.database.write() as connection:
            return memories.add(connection, self.caller, memories.NewMemory(**{**standard, **fields}))[0]


@pytest.fixture
def place(database: Database) -> Place:
    """A project of a team."""
    with database.write() as connection:
        caller = server_owner().within(teams.create(connection, server_owner(), name="a").id)
        project = projects.create(connection, caller, name="p")
    return Place(database, caller, project.id)
