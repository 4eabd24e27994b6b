"""A copy into PostgreSQL equals its source, however often it was interrupted, or reports what is missing."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from app.caller import Caller
from app.errors import Conflict, Unavailable
from app.legacy import reader
from app.legacy.shapes import ReaderOptions
from app.services.backup import copy_to_postgresql
from app.services.backup.copy_to_postgresql import CopyReport
from app.services.memories import memories
from app.services.transfer import legacy_import
from app.services.transfer.legacy_import import Destination
from app.store import models, usage_lock
from app.store.database import Database
from app.store.postgresql_copy.plan import TABLES
from app.store.schema import migrations
from tests.legacy import builders
from tests.postgresql import SERVER, Cluster
from tests.services import full_project
from tests.services.backup.copies import (
    contents,
    copied,
    copy,
    copy_until,
    exported,
    fill_every_table,
    new_team,
    outbox,
    remember,
    remember_many,
)
from tests.serving import ROOT


@pytest.fixture
def caller(database: Database) -> Caller:
    """The owner of a team in the source."""
    return new_team(database, "a")


def test_every_row_of_every_table_is_copied_unchanged(database: Database, caller: Caller, target: Database):
    """Ids, times, sequence numbers, key hashes: nothing differs, and the report says so."""
    fill_every_table(database, caller)

    report = copy(database, target)

    assert (report.ok, report.replaced_rows, report.refused, report.faults) == (True, 0, [], [])
    assert contents(target) == contents(database)
    assert copied(report) == {name: len(rows) for name, rows in contents(database).items()}
    assert min(copied(report).values()) > 0
    assert {table.same for table in report.tables.values()} == {True}


def test_export_of_the_copy_is_byte_identical(database: Database, caller: Caller, target: Database):
    """Sessions, events, memories, sources, rules and supersessions, in three scripts."""
    full_project.create(database, caller, rows=500)

    copy(database, target)

    assert exported(target, caller) == exported(database, caller)


def test_memories_imported_from_claude_mem_are_copied(
    database: Database, caller: Caller, target: Database, tmp_path: Path
):
    """Their sources are copied as well, so that a repeated import creates nothing."""
    legacy = builders.sample(tmp_path / "claude-mem.db")
    import_legacy(database, caller, legacy)

    copy(database, target)

    assert exported(target, caller) == exported(database, caller)
    again = import_legacy(target, caller, legacy)
    assert {noun: counts.created for noun, counts in again.counts.items()} == dict.fromkeys(again.counts, 0)


def import_legacy(database: Database, caller: Caller, path: Path) -> legacy_import.LegacyImportReport:
    with reader.open_copy(path, ReaderOptions()) as opened:
        return legacy_import.run(database, caller, opened, Destination(), dry_run=False, progress=lambda done: None)


def test_copy_has_full_text(database: Database, caller: Caller, target: Database):
    """Triggers have built full text and statistics."""
    remember(database, caller, 3)

    copy(database, target)

    with target.read() as connection:
        assert connection.scalar(text("SELECT count(*) FROM memory_items_fts")) == 3
        assert connection.scalar(select(models.project_statistics.c.memories)) == 3


@pytest.mark.parametrize("rows", [1, 250, 500])
def test_interrupted_copy_continues_where_it_stopped(database: Database, caller: Caller, target: Database, rows: int):
    """Existing rows are not copied again, and all rows are there in the end."""
    full_project.create(database, caller, rows=300)
    copy_until(database, target, rows)
    with target.read() as connection:
        there = sum(connection.scalar(select(func.count()).select_from(table)) for table in TABLES)

    report = copy(database, target)

    assert there >= rows
    assert sum(copied(report).values()) == sum(table.rows for table in report.tables.values()) - there
    assert report.ok, report
    assert contents(target) == contents(database)


def test_killed_copy_continues_where_it_stopped(database: Database, caller: Caller, target: Database, cluster: Cluster):
    """kill -9 while memories are being copied."""
    remember_many(database, caller, 4_000)
    process = subprocess.Popen(
        [sys.executable, "-m", "app", "db", "copy", "--to", target.url],
        env={"PATH": os.environ["PATH"], "CMEM_DATABASE_URL": database.url, "CMEM_VECTORS": "off"},
        cwd=ROOT,
        stdout=subprocess.DEVNULL,
    )
    wait_for(lambda: memories_in(target) >= 1_000 or process.poll() is not None)
    process.send_signal(signal.SIGKILL)
    assert process.wait(timeout=10) == -signal.SIGKILL

    report = copy_soon(database, target)

    assert 0 < copied(report)["memory_items"] <= 3_000
    assert report.ok, report
    assert contents(target) == contents(database)


def memories_in(database: Database) -> int:
    with database.read() as connection:
        return connection.scalar(select(func.count()).select_from(models.memory_items)) or 0


def wait_for(is_so: Callable[[], bool]) -> None:
    give_up_at = time.monotonic() + 120
    while not is_so():
        assert time.monotonic() < give_up_at
        time.sleep(0.01)


def copy_soon(source: Database, target: Database) -> CopyReport:
    """Copy once PostgreSQL has noticed that the killed process is gone."""
    for _ in range(50):
        try:
            return copy(source, target)
        except (Conflict, Unavailable):
            time.sleep(0.2)
    return copy(source, target)


def test_second_copy_copies_nothing(database: Database, caller: Caller, target: Database):
    """It only compares again."""
    full_project.create(database, caller, rows=100)
    copy(database, target)
    before = contents(target)

    again = copy(database, target)

    assert (again.ok, again.finished_before, copied(again)) == (True, True, {})
    assert contents(target) == before


def test_row_that_changed_afterwards_is_detected(database: Database, caller: Caller, target: Database):
    """Contents are compared, and the report names the table."""
    full_project.create(database, caller, rows=100)
    copy(database, target)
    with target.write() as connection:
        connection.execute(models.agent_events.update().values(event_type="other"))

    again = copy(database, target)

    assert [name for name, table in again.tables.items() if not table.same] == ["agent_events"]
    assert not again.ok


def test_two_sources_are_never_mixed(database: Database, caller: Caller, target: Database, tmp_path: Path):
    """Neither while the first copy is unfinished nor later."""
    full_project.create(database, caller, rows=100)
    url = f"sqlite:///{tmp_path / 'other.db'}"
    migrations.upgrade(url)
    with closing(Database(url)) as other:
        new_team(other, "another")
        for take in (lambda: copy_until(database, target, 1), lambda: copy(database, target)):
            take()
            before = contents(target)
            with pytest.raises(Conflict, match="another database"):
                copy(other, target)
            assert contents(target) == before


def test_source_that_has_changed_counts_as_another_one(database: Database, caller: Caller, target: Database):
    """What was copied of it may be out of date."""
    full_project.create(database, caller, rows=100)
    copy_until(database, target, 50)
    with database.write() as connection:
        connection.execute(models.memory_items.update().values(title="changed"))

    with pytest.raises(Conflict, match="as it was before it changed"):
        copy(database, target)


def test_copy_starts_over_after_emptying_the_target(database: Database, caller: Caller, target: Database):
    """This is the remedy that the error suggests."""
    full_project.create(database, caller, rows=100)
    copy_until(database, target, 50)
    migrations.downgrade(target.url, "base")
    copy_to_postgresql.prepare(target.url, SERVER)

    assert copy(database, target).ok


def test_target_that_is_not_empty_is_rejected(database: Database, caller: Caller, target: Database):
    """Its rows are not touched."""
    new_team(target, "existing")
    before = contents(target)

    with pytest.raises(Conflict, match="not empty: it has rows in audit_log, teams"):
        copy(database, target)
    assert contents(target) == before


def test_only_one_copy_runs_at_a_time(database: Database, caller: Caller, target: Database):
    """The second one fails instead of waiting."""
    with target.advisory_lock("copy"), pytest.raises(Conflict, match="Another copy"):
        copy(database, target)


def test_dry_run_counts_and_changes_nothing(database: Database, caller: Caller, empty_database: str):
    """It does not even create a table."""
    full_project.create(database, caller, rows=100)
    with closing(Database(empty_database)) as target:
        report = copy_to_postgresql.rehearse(database, target, vectors="rebuild", progress=lambda *_: None)

    assert report.dry_run
    assert report.ok
    assert report.tables["memory_items"].rows == 80
    assert migrations.current(empty_database) is None


def test_sequence_continues_after_highest_deleted_id(database: Database, caller: Caller, target: Database):
    """Numbers are never reused, even if their memory was deleted."""
    ids = remember(database, caller, 3)
    with database.write() as connection:
        highest = connection.scalar(select(func.max(models.memory_items.c.seq)))
        memories.remove(connection, caller, ids[-1], precondition=lambda _: True)
    copy(database, target)

    remember(target, new_team(target, "b"), 1)

    with target.read() as connection:
        assert connection.scalar(select(func.max(models.memory_items.c.seq))) == highest + 1


def test_kept_vectors_copy_the_outbox(database: Database, caller: Caller, target: Database):
    """Pending, deleted and set-aside entries are copied; claims of the old server are dropped."""
    ids = remember(database, caller, 3)
    entries = models.vector_outbox
    with database.write() as connection:
        connection.execute(entries.delete().where(entries.c.memory_id == ids[0]))
        connection.execute(entries.update().where(entries.c.memory_id == ids[1]).values(failed=True, claimed_by="old"))
        memories.remove(connection, caller, ids[2], precondition=lambda _: True)

    report = copy(database, target, "keep")

    assert outbox(target) == outbox(database)
    assert {(memory_id, operation) for memory_id, operation, _, _ in outbox(target)} == {
        (ids[1], "upsert"),
        (ids[2], "delete"),
    }
    assert {memory_id for memory_id, *_, failed in outbox(target) if failed} == {ids[1]}
    assert report.ok
    with target.read() as connection:
        assert connection.scalar(select(func.count(entries.c.claimed_by))) == 0


def test_rebuilding_vectors_enqueues_every_memory(database: Database, caller: Caller, target: Database):
    """Whatever the source's index held."""
    ids = remember(database, caller, 3)
    with database.write() as connection:
        connection.execute(models.vector_outbox.delete())

    copy(database, target)

    assert [(memory_id, operation) for memory_id, operation, *_ in outbox(target)] == [
        (each, "upsert") for each in sorted(ids)
    ]


def test_server_on_postgresql_is_detected(target: Database, empty_database: str):
    """Nothing may write to the source during a copy."""
    with usage_lock.exclusive(empty_database):
        pass
    with target.read(), pytest.raises(Conflict, match="stop it first"), usage_lock.exclusive(empty_database):
        pass


def test_target_of_an_older_version_is_not_touched(database: Database, target: Database):
    """Its owner has to upgrade it explicitly."""
    migrations.downgrade(target.url, "0002")

    with pytest.raises(migrations.WrongRevision, match="db upgrade"):
        copy_to_postgresql.prepare(target.url, None)
