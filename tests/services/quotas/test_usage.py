"""Usage counts of a deleted team are dropped, even if they are stored after the deletion."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from app.caller import Caller, server_owner
from app.services.identity import teams
from app.services.quotas import usage
from app.services.quotas.usage import UsageKey
from app.store.database import Database
from app.store.engines import rls_context


def new_team(database: Database, name: str) -> Caller:
    with database.write() as connection:
        return server_owner().within(teams.create(connection, server_owner(), name=name).id)


def remove(database: Database, owner: Caller, *, by: Caller) -> None:
    with rls_context.acting_for(by.team_id), database.write() as connection:
        teams.remove(connection, by, owner.team_id or "")


def read_requests(database: Database, owner: Caller) -> int:
    with database.read() as connection:
        return usage.totals(connection, owner, "2026-11")["read"]


def usage_of(owner: Caller) -> dict[UsageKey, int]:
    return {UsageKey(f"key of {owner.team_id}", owner.team_id, "2026-11", "read"): 3}


def test_counts_of_a_deleted_team_are_not_stored(database: Database):
    """Those of other teams in the same batch are, and so are those without a team."""
    gone, stays = new_team(database, "gone"), new_team(database, "stays")
    remove(database, gone, by=server_owner())
    with database.write() as connection:
        usage.store(
            connection, {**usage_of(gone), **usage_of(stays), UsageKey("of the server", None, "2026-11", "read"): 1}
        )

    assert (read_requests(database, gone), read_requests(database, stays)) == (0, 3)


@pytest.mark.parametrize("deletes", ["the team", "the server"])
def test_team_deleted_while_its_counts_are_stored_leaves_none(database: Database, deletes: str):
    """Whichever transaction comes first, the other one waits for it and sees its effect."""
    owner = new_team(database, "a")
    has_begun = threading.Event()

    def store() -> None:
        with database.write() as connection:
            usage.store(connection, usage_of(owner))
            has_begun.set()
            time.sleep(0.2)  # the deletion starts before this commits

    def delete() -> None:
        has_begun.wait(10)
        remove(database, owner, by=owner if deletes == "the team" else server_owner())

    with ThreadPoolExecutor(2) as pool:
        for future in [pool.submit(store), pool.submit(delete)]:
            future.result()

    assert read_requests(database, owner) == 0
