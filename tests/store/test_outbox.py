"""Draining the outbox: any number of owners, which wait for no client and release nobody else's claims."""

from collections.abc import Callable

import pytest
from sqlalchemy import text, update

from app.caller import Caller, server_owner
from app.services.identity import teams
from app.services.memories import memories
from app.services.memories.memories import NewMemory
from app.services.projects import projects
from app.store import outbox
from app.store.database import Database
from app.store.engines import rls_context
from app.store.models import vector_outbox
from app.store.outbox import OutboxEntry

LEASE_MS = 60_000


@pytest.fixture
def owner(database: Database) -> Caller:
    with database.write() as connection:
        return server_owner().within(teams.create(connection, server_owner(), name="team").id)


@pytest.fixture
def project_id(database: Database, owner: Caller) -> str:
    with database.write() as connection:
        return projects.create(connection, owner, name="project").id


@pytest.fixture
def pending(database: Database, owner: Caller, project_id: str) -> list[str]:
    """Five memories that are waiting to be mirrored."""
    with database.write() as connection:
        new = [NewMemory(project_id=project_id, kind="manual", type="manual", text=f"text {n}") for n in range(5)]
        return [memory.id for memory in memories.add_batch(connection, owner, new)]


@pytest.fixture
def claim(database: Database) -> Callable[..., list[OutboxEntry]]:
    def claim_entries(owner: str, *, limit: int = 16, now_ms: int | None = None) -> list[OutboxEntry]:
        at_ms = _now() if now_ms is None else now_ms
        with database.write(exclusive=False) as connection:
            return outbox.claim(connection, owner, now_ms=at_ms, lease_ms=LEASE_MS, limit=limit)

    return claim_entries


def _now() -> int:
    return 4_000_000_000_000  # later than any time that the triggers wrote


def ids(entries: list[OutboxEntry]) -> set[str]:
    return {entry.memory_id for entry in entries}


def test_entry_cannot_be_claimed_twice_before_its_lease_expires(claim, pending: list[str]):
    """After that anyone can claim it, because its owner must be dead."""
    first = claim("first", limit=2)
    second = claim("second")
    assert ids(first) | ids(second) == set(pending)
    assert ids(first) & ids(second) == set()
    assert claim("third") == []
    assert ids(claim("third", now_ms=_now() + LEASE_MS)) == set(pending)


def test_owner_can_claim_its_own_unfinished_entries_again(database: Database, claim, pending: list[str]):
    """At once, because nobody else is working on them."""
    claimed = claim("first")
    with database.read() as connection:
        assert outbox.has_due(connection, "first", now_ms=_now())
        assert not outbox.has_due(connection, "second", now_ms=_now())
    assert ids(claim("first")) == ids(claimed) == set(pending)


def test_only_claims_with_the_prefix_are_released(database: Database, claim, pending: list[str]):
    """The owners of other claims may be alive."""
    claim("here 1", limit=2)
    claim("there 1")
    with database.write(exclusive=False) as connection:
        outbox.release_all(connection, "here ")
    assert len(claim("here 2")) == 2


def test_entry_that_changed_while_it_was_mirrored_stays_pending(
    database: Database, owner: Caller, claim, pending: list[str]
):
    """The others are acknowledged."""
    entries = claim("first")
    with database.write() as connection:
        memories.change(connection, owner, pending[0], {"text": "other"}, precondition=lambda _: True)
    with database.write(exclusive=False) as connection:
        outbox.acknowledge(connection, "first", entries)
        outbox.postpone(connection, "first", entries, until_ms=0)
    assert ids(claim("second")) == {pending[0]}


def test_claimed_entries_are_mirrored_again_after_a_collection_is_swapped(
    database: Database, claim, project_id: str, pending: list[str]
):
    """They may have been written to the deleted collection."""
    entries = claim("first")
    with database.write() as connection:
        outbox.requeue_claimed(connection, project_id)
    with database.write(exclusive=False) as connection:
        outbox.acknowledge(connection, "first", entries)
    assert ids(claim("first")) == set(pending)


def test_pending_entry_is_not_enqueued_twice(database: Database, project_id: str, pending: list[str]):
    """It stays unchanged."""
    with database.write() as connection:
        before = connection.execute(vector_outbox.select()).all()
        assert outbox.enqueue_slice(connection, project_id, after_seq=0, now_ms=1) is not None
        again = [OutboxEntry(pending[0], before[0].team_id, project_id, "upsert", 9, 0)]
        outbox.enqueue(connection, again, now_ms=1)
        assert connection.execute(vector_outbox.select()).all() == before


def test_drainer_skips_entries_locked_by_a_client(
    databases, database: Database, owner: Caller, claim, pending: list[str]
):
    """Claiming and acknowledging wait for nobody, and get the entries once the client is done."""
    if databases.dialect == "sqlite":
        pytest.skip("SQLite has one writer at a time")
    entries = claim("first", limit=3)
    with rls_context.acting_for(owner.team_id), database.write() as client:
        client.execute(update(vector_outbox).values(enqueued_at_epoch=1))
        with database.write(exclusive=False) as connection:
            connection.execute(text("SET LOCAL lock_timeout = 100"))
            outbox.acknowledge(connection, "first", entries)
            outbox.release(connection, "first")
            assert outbox.claim(connection, "second", now_ms=_now(), lease_ms=LEASE_MS, limit=16) == []
    assert ids(claim("first")) == set(pending)
