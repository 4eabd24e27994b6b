"""Members of a team under concurrent changes."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.caller import Caller, server_owner
from app.errors import Conflict
from app.services.identity import members, teams
from app.store.database import Database
from app.store.engines import rls_context


@pytest.fixture
def owner(database: Database) -> Caller:
    """The server's owner in a team with two owners of its own."""
    with database.write() as connection:
        caller = server_owner().within(teams.create(connection, server_owner(), name="a").id)
        for user_id in ("one", "two"):
            members.add(connection, caller, user_id=user_id, role="owner")
    return caller


def test_last_two_owners_cannot_be_removed_concurrently(database: Database, owner: Caller):
    """Not even when the team removes one and the server's owner the other."""
    together = threading.Barrier(2)

    def remove(acting_for: str | None, user_id: str) -> bool:
        with rls_context.acting_for(acting_for):
            together.wait(10)
            try:
                with database.write() as connection:
                    members.remove(connection, owner, user_id)
                    time.sleep(0.2)  # the other transaction reads before this one commits
            except Conflict:
                return False
        return True

    with ThreadPoolExecutor(2) as pool:
        attempts = [pool.submit(remove, None, "one"), pool.submit(remove, owner.team_id, "two")]
        assert sorted(attempt.result() for attempt in attempts) == [False, True]
