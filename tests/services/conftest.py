"""Fixtures: a project of a team with its owner, and an empty PostgreSQL as the target of a copy."""

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
class TeamProject:
    """A project, and the owner of its team."""

    database: Database
    caller: Caller
    project_id: str

    def remember(self, text: str, **fields: Any) -> Memory:
        """Store a memory in the project."""
        defaults = {"project_id": self.project_id, "kind": "manual", "type": "manual", "text": text}
        with self.database.write() as connection:
            return memories.add(connection, self.caller, memories.NewMemory(**{**defaults, **fields})).memory


@pytest.fixture
def team_project(database: Database) -> TeamProject:
    """A project of a new team."""
    with database.write() as connection:
        caller = server_owner().within(teams.create(connection, server_owner(), name="a").id)
        project = projects.create(connection, caller, name="p")
    return TeamProject(database, caller, project.id)


@pytest.fixture
def target(empty_database: str) -> Iterator[Database]:
    """An empty PostgreSQL database, prepared as the target of a copy."""
    copy_to_postgresql.prepare(empty_database, SERVER)
    with closing(Database(empty_database)) as opened:
        yield opened
