"""The audit log's retention: what is older goes, the rest stays, and the log says that it was done."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from app.services.audit import pruning
from app.services.operations import maintenance
from app.store.database import Database
from tests.services import library
from tests.services.library import Library
from tests.stores import Stores

DAY_MS = 86_400_000
OLD, KEPT = 25, 3


@pytest.fixture
def books(stores: Stores, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """A log with entries of forty days ago and of today, pruned ten at a time."""
    monkeypatch.setattr(pruning, "_BATCH_ENTRIES", 10)
    with library.opened(stores, tmp_path) as opened:
        with _unguarded(stores, tmp_path) as connection:
            connection.exec_driver_sql("UPDATE audit_log SET action = 'setup'")
        for number in range(OLD + KEPT):
            opened.add_project(f"p{number}")
        with _unguarded(stores, tmp_path) as connection:
            sql = f"UPDATE audit_log SET created_at_epoch = created_at_epoch - {40 * DAY_MS} WHERE seq IN"
            wanted = f"(SELECT seq FROM audit_log WHERE action = 'project.create' ORDER BY seq LIMIT {OLD})"
            connection.exec_driver_sql(f"{sql} {wanted}")
        yield opened


@contextmanager
def _unguarded(stores: Stores, folder: Path) -> Iterator[Connection]:
    """Write as the owner of the tables, and once past the guard that keeps the log as it is."""
    with closing(Database(stores.owner_url(folder))) as database, database.write() as connection:
        if stores.dialect == "sqlite":
            connection.exec_driver_sql("DROP TRIGGER IF EXISTS trg_audit_log_update")
            yield connection
            return
        connection.exec_driver_sql("ALTER TABLE audit_log DISABLE TRIGGER trg_audit_log_update")
        yield connection
        connection.exec_driver_sql("ALTER TABLE audit_log ENABLE TRIGGER trg_audit_log_update")


def actions(books: Library) -> list[tuple[str, int]]:
    """The log, but for how the library was set up."""
    sql = "SELECT action, count FROM audit_log WHERE action != 'setup' ORDER BY seq"
    with books.database.read() as connection:
        return [(action, count) for action, count in connection.exec_driver_sql(sql).all()]


def test_what_is_older_goes_and_the_log_says_so(books: Library):
    """In batches, each with an entry that counts it."""
    told: list[int] = []

    pruned = pruning.prune(books.database, 30, progress=told.append)

    assert (pruned.removed, told) == (OLD, [10, 20, OLD])
    assert (
        sorted(actions(books))
        == [("audit.prune", 5), ("audit.prune", 10), ("audit.prune", 10)] + [("project.create", 1)] * KEPT
    )


def test_a_rehearsal_counts_what_the_run_then_removes(books: Library):
    """And changes nothing."""
    before = actions(books)
    rehearsed = pruning.prune(books.database, 30, dry_run=True).removed

    assert actions(books) == before
    assert pruning.prune(books.database, 30).removed == rehearsed


def test_twice_is_safe(books: Library):
    """The second run has nothing to do, and leaves no entry."""
    pruning.prune(books.database, 30)
    before = actions(books)

    assert pruning.prune(books.database, 30).removed == 0
    assert actions(books) == before


def test_an_interrupted_run_is_gone_on_with(books: Library):
    """What was removed is accounted for, batch by batch."""

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pruning.prune(books.database, 30, progress=interrupt)
    assert pruning.prune(books.database, 30).removed == OLD - 10

    assert sum(count for action, count in actions(books) if action == "audit.prune") == OLD


def test_nobody_else_can_delete_from_the_log_afterwards(books: Library):
    """The door is open within the transaction alone."""
    pruning.prune(books.database, 30)

    with pytest.raises(IntegrityError), books.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM audit_log")


@pytest.mark.parametrize(("days", "removed"), [(0, 0), (30, OLD), (60, 0)])
def test_maintenance_prunes_by_the_setting(books: Library, days: int, removed: int):
    """Nothing goes unless somebody has said how long the log is kept."""
    assert maintenance.run(books.database, audit_days=days).audit_entries == removed
