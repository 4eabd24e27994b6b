"""What was counted for a team goes with the team, though it is stored later."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.caller import Caller, server_owner
from app.services.identity import teams
from app.services.quotas import usage
from app.services.quotas.usage import Used
from app.store.database import Database
from app.store.engines import rls_context


def new_team(database: Database, name: str) -> Caller:
    with database.write() as connection:
        return server_owner().within(teams.create(connection, server_owner(), name=name).id)


def remove(database: Database, owner: Caller, *, by: Caller) -> None:
    with rls_context.acting(by.team_id), database.write() as connection:
        teams.remove(connection, by, owner.team_id or "")


def counted(database: Database, owner: Caller) -> int:
    with database.read() as connection:
        return usage.totals(connection, owner, "2026-11")["read"]


def used(owner: Caller) -> dict[Used, int]:
    return {Used(f"key of {owner.team_id}", owner.team_id, "2026-11", "read"): 3}


def test_counts_of_a_team_that_is_gone_are_not_stored(database: Database):
    """Those of others in the same batch are, and those of no team."""
    gone, stays = new_team(database, "gone"), new_team(database, "stays")
    remove(database, gone, by=server_owner())
    with database.write() as connection:
        usage.store(connection, {**used(gone), **used(stays), Used("of the server", None, "2026-11", "read"): 1})

    assert (counted(database, gone), counted(database, stays)) == (0, 3)


@pytest.mark.parametrize("deletes", ["the team", "the server"])
def test_a_team_that_is_deleted_while_its_counts_are_stored_leaves_none(database: Database, deletes: str):
    """Whoever comes first: the other one waits, and knows."""
    owner = new_team(database, "a")
    has_begun = threading.Event()

    def store() -> None:
        with database.write() as connection:
            usage.store(connection, used(owner))
            has_begun.set()
            time.sleep(0.2)  # the deletion begins before this is committed

    def delete() -> None:
        has_begun.wait(10)
        remove(database, owner, by=owner if deletes == "the team" else server_owner())

    with ThreadPoolExecutor(2) as pool:
        for each in [pool.submit(store), pool.submit(delete)]:
            each.result()

    assert counted(database, owner) == 0
