"""Row-level security is bypassed within the block, and nowhere after it."""

import pytest
from sqlalchemy import Connection, func, select

from app.caller import server_owner
from app.services.identity import teams
from app.store import models
from app.store.database import Database
from app.store.engines import rls_context
from app.store.rls_bypass import bypass_rls

pytestmark = pytest.mark.postgresql


@pytest.fixture
def team_id(database: Database) -> str:
    """One of two teams."""
    with database.write() as connection:
        teams.create(connection, server_owner(), name="other")
        return teams.create(connection, server_owner(), name="own").id


def visible(connection: Connection) -> int:
    return connection.scalar(select(func.count()).select_from(models.teams)) or 0


def test_every_team_is_visible_within_the_block_only(database: Database, team_id: str):
    """Afterwards the transaction acts for its team again."""
    with rls_context.acting_for(team_id), database.read() as connection:
        before = visible(connection)
        with bypass_rls(connection):
            within = visible(connection)

        assert (before, within, visible(connection)) == (1, 2, 1)


def test_exception_ends_the_bypass(database: Database, team_id: str):
    """The caller may handle it and go on reading."""

    class Failed(Exception):
        pass

    with rls_context.acting_for(team_id), database.read() as connection:
        with pytest.raises(Failed), bypass_rls(connection):
            raise Failed

        assert visible(connection) == 1
