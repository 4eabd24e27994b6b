"""Retention of the audit log: old entries are removed, the others stay, and the log records it."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from sqlalchemy import Connection
from sqlalchemy.exc import IntegrityError

from app.services.audit import pruning
from app.services.operations import maintenance
from app.store.database import Database
from tests.databases import Databases
from tests.services import library
from tests.services.library import Library

DAY_MS = 86_400_000
OLD, KEPT = 25, 3


@pytest.fixture
def books(databases: Databases, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Library]:
    """A log with entries from forty days ago and from today, pruned ten at a time."""
    monkeypatch.setattr(pruning, "_BATCH_ENTRIES", 10)
    with library.opened(databases, tmp_path) as opened:
        with _unguarded(databases, tmp_path) as connection:
            connection.exec_driver_sql("UPDATE audit_log SET action = 'setup'")
        for number in range(OLD + KEPT):
            opened.add_project(f"p{number}")
        with _unguarded(databases, tmp_path) as connection:
            sql = f"UPDATE audit_log SET created_at_epoch = created_at_epoch - {40 * DAY_MS} WHERE seq IN"
            oldest = f"(SELECT seq FROM audit_log WHERE action = 'project.create' ORDER BY seq LIMIT {OLD})"
            connection.exec_driver_sql(f"{sql} {oldest}")
        yield opened


@contextmanager
def _unguarded(databases: Databases, folder: Path) -> Iterator[Connection]:
    """Write as the owner of the tables, with the trigger disabled that makes the log append-only."""
    with closing(Database(databases.owner_url(folder))) as database, database.write() as connection:
        if databases.dialect == "sqlite":
            connection.exec_driver_sql("DROP TRIGGER IF EXISTS trg_audit_log_update")
            yield connection
            return
        connection.exec_driver_sql("ALTER TABLE audit_log DISABLE TRIGGER trg_audit_log_update")
        yield connection
        connection.exec_driver_sql("ALTER TABLE audit_log ENABLE TRIGGER trg_audit_log_update")


def actions(books: Library) -> list[tuple[str, int]]:
    """Return the entries of the log except those of the setup."""
    sql = "SELECT action, count FROM audit_log WHERE action != 'setup' ORDER BY seq"
    with books.database.read() as connection:
        return [(action, count) for action, count in connection.exec_driver_sql(sql).all()]


def test_old_entries_are_removed_and_the_log_records_it(books: Library):
    """In batches, each with an entry that counts it."""
    progress: list[int] = []

    pruned = pruning.prune(books.database, 30, progress=progress.append)

    assert (pruned.removed, progress) == (OLD, [10, 20, OLD])
    assert (
        sorted(actions(books))
        == [("audit.prune", 5), ("audit.prune", 10), ("audit.prune", 10)] + [("project.create", 1)] * KEPT
    )


def test_dry_run_counts_what_the_run_then_removes(books: Library):
    """And changes nothing."""
    before = actions(books)
    expected = pruning.prune(books.database, 30, dry_run=True).removed

    assert actions(books) == before
    assert pruning.prune(books.database, 30).removed == expected


def test_pruning_twice_is_safe(books: Library):
    """The second run has nothing to do, and writes no entry."""
    pruning.prune(books.database, 30)
    before = actions(books)

    assert pruning.prune(books.database, 30).removed == 0
    assert actions(books) == before


def test_interrupted_run_can_be_resumed(books: Library):
    """Removed entries are accounted for batch by batch."""

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        pruning.prune(books.database, 30, progress=interrupt)
    assert pruning.prune(books.database, 30).removed == OLD - 10

    assert sum(count for action, count in actions(books) if action == "audit.prune") == OLD


def test_log_cannot_be_deleted_from_afterwards(books: Library):
    """Deletion is permitted within the pruning transaction only."""
    pruning.prune(books.database, 30)

    with pytest.raises(IntegrityError), books.database.write() as connection:
        connection.exec_driver_sql("DELETE FROM audit_log")


@pytest.mark.parametrize(("days", "removed"), [(0, 0), (30, OLD), (60, 0)])
def test_maintenance_prunes_by_the_setting(books: Library, days: int, removed: int):
    """Nothing is removed unless a retention period is set."""
    assert maintenance.run(books.database, audit_days=days).audit_entries == removed
