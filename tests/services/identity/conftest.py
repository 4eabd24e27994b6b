"""Fixtures of the tests of keys."""

import pytest

from app.caller import server_owner
from app.services.identity import teams
from app.services.projects import projects
from app.store.database import Database
from tests.services.identity.team_with_keys import TeamWithKeys


@pytest.fixture
def team(database: Database) -> TeamWithKeys:
    with database.write() as connection:
        owner = server_owner().within(teams.create(connection, server_owner(), name="a").id)
        first, second = (projects.create(connection, owner, name=name).id for name in ("one", "two"))
    return TeamWithKeys(database, owner, first, second)
