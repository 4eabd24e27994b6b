"""A project of a team with its owner, and an empty PostgreSQL that takes a copy in."""

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from typing import Any

import pytest

from app.caller import Caller, server_owner
from app.services.backup import copy_to_postgresql
from app.services.identity import teams
from app.services.memories import memories
from app.services.projects import projects
from app.store.database import Database
from app.store.records import Memory
from tests.postgresql import SERVER


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


@pytest.fixture
def target(unborn: str) -> Iterator[Database]:
    """An empty PostgreSQL, ready to take a copy in."""
    copy_to_postgresql.prepare(unborn, SERVER)
    with closing(Database(unborn)) as opened:
        yield opened
