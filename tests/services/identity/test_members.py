"""Members of a team: what must hold whoever writes at the same time."""

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


def test_two_last_owners_cannot_both_leave_at_once(database: Database, owner: Caller):
    """Neither when the team removes one while the server's owner removes the other."""
    together = threading.Barrier(2)

    def remove(acting_for: str | None, user_id: str) -> bool:
        with rls_context.acting(acting_for):
            together.wait(10)
            try:
                with database.write() as connection:
                    members.remove(connection, owner, user_id)
                    time.sleep(0.2)  # the other one looks before this is committed
            except Conflict:
                return False
        return True

    with ThreadPoolExecutor(2) as pool:
        tries = [pool.submit(remove, None, "one"), pool.submit(remove, owner.team_id, "two")]
        assert sorted(each.result() for each in tries) == [False, True]
