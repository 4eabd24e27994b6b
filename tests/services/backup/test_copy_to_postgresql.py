"""A copy into PostgreSQL holds everything the source does, however often interrupted, or says what is missing."""

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
from app.legacy.shapes import Rules
from app.services.backup import copy_to_postgresql
from app.services.backup.copy_to_postgresql import Report
from app.services.memories import memories
from app.services.transfer import legacy_import
from app.services.transfer.legacy_import import Destination
from app.store import models, usage_lock
from app.store.database import Database
from app.store.postgresql_copy.plan import TABLES
from app.store.schema import migrations
from tests.legacy import builders
from tests.postgresql import SERVER, Cluster
from tests.services import everything
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


def test_every_row_of_every_table_arrives_as_it_was(database: Database, caller: Caller, target: Database):
    """Ids, times, sequence numbers, hashes of keys: nothing at all differs, and the copy says so."""
    fill_every_table(database, caller)

    report = copy(database, target)

    assert (report.ok, report.replaced_rows, report.refused, report.faults) == (True, 0, [], [])
    assert contents(target) == contents(database)
    assert copied(report) == {name: len(rows) for name, rows in contents(database).items()}
    assert min(copied(report).values()) > 0
    assert {table.same for table in report.tables.values()} == {True}


def test_an_export_of_the_copy_is_the_same_to_the_byte(database: Database, caller: Caller, target: Database):
    """Sessions, events, memories, sources, rules and which memory replaces which, in three scripts."""
    everything.fill(database, caller, rows=500)

    copy(database, target)

    assert exported(target, caller) == exported(database, caller)


def test_what_was_imported_from_claude_mem_arrives(
    database: Database, caller: Caller, target: Database, tmp_path: Path
):
    """With the sources that let an import be repeated: nothing comes in twice."""
    legacy = builders.sample(tmp_path / "claude-mem.db")
    bring_in(database, caller, legacy)

    copy(database, target)

    assert exported(target, caller) == exported(database, caller)
    again = bring_in(target, caller, legacy)
    assert {noun: counts.created for noun, counts in again.counts.items()} == dict.fromkeys(again.counts, 0)


def bring_in(database: Database, caller: Caller, path: Path) -> legacy_import.Report:
    with reader.opened(path, Rules()) as opened:
        return legacy_import.run(database, caller, opened, Destination(), dry_run=False, progress=lambda done: None)


def test_the_copy_is_searched_by_words(database: Database, caller: Caller, target: Database):
    """Full text and statistics have followed."""
    remember(database, caller, 3)

    copy(database, target)

    with target.read() as connection:
        assert connection.scalar(text("SELECT count(*) FROM memory_items_fts")) == 3
        assert connection.scalar(select(models.project_statistics.c.memories)) == 3


@pytest.mark.parametrize("rows", [1, 250, 500])
def test_an_interrupted_copy_goes_on_where_it_stopped(database: Database, caller: Caller, target: Database, rows: int):
    """What is there is not copied again, and in the end all of it is."""
    everything.fill(database, caller, rows=300)
    copy_until(database, target, rows)
    with target.read() as connection:
        there = sum(connection.scalar(select(func.count()).select_from(table)) for table in TABLES)

    report = copy(database, target)

    assert there >= rows
    assert sum(copied(report).values()) == sum(table.rows for table in report.tables.values()) - there
    assert report.ok, report
    assert contents(target) == contents(database)


def test_a_copy_that_was_killed_goes_on_where_it_stopped(
    database: Database, caller: Caller, target: Database, cluster: Cluster
):
    """kill -9 of the command in the middle of the memories."""
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


def copy_soon(source: Database, target: Database) -> Report:
    """Copy once the server has noticed that the killed one is gone."""
    for _ in range(50):
        try:
            return copy(source, target)
        except (Conflict, Unavailable):
            time.sleep(0.2)
    return copy(source, target)


def test_run_twice_it_copies_nothing(database: Database, caller: Caller, target: Database):
    """It compares again."""
    everything.fill(database, caller, rows=100)
    copy(database, target)
    before = contents(target)

    again = copy(database, target)

    assert (again.ok, again.finished_before, copied(again)) == (True, True, {})
    assert contents(target) == before


def test_a_row_that_is_lost_afterwards_is_noticed(database: Database, caller: Caller, target: Database):
    """The comparison is one of contents, and names the table."""
    everything.fill(database, caller, rows=100)
    copy(database, target)
    with target.write() as connection:
        connection.execute(models.agent_events.update().values(event_type="other"))

    again = copy(database, target)

    assert [name for name, table in again.tables.items() if not table.same] == ["agent_events"]
    assert not again.ok


def test_two_sources_are_never_mixed(database: Database, caller: Caller, target: Database, tmp_path: Path):
    """Neither while the first copy is unfinished nor later."""
    everything.fill(database, caller, rows=100)
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


def test_a_source_that_changed_since_is_another_one(database: Database, caller: Caller, target: Database):
    """What was copied of it before may not be true any more."""
    everything.fill(database, caller, rows=100)
    copy_until(database, target, 50)
    with database.write() as connection:
        connection.execute(models.memory_items.update().values(title="changed"))

    with pytest.raises(Conflict, match="as it was before it changed"):
        copy(database, target)


def test_after_emptying_the_target_it_begins_anew(database: Database, caller: Caller, target: Database):
    """The way out that the refusal names."""
    everything.fill(database, caller, rows=100)
    copy_until(database, target, 50)
    migrations.downgrade(target.url, "base")
    copy_to_postgresql.prepare(target.url, SERVER)

    assert copy(database, target).ok


def test_a_target_with_anything_in_it_is_refused(database: Database, caller: Caller, target: Database):
    """Somebody's team is there, and stays as it is."""
    new_team(target, "standing")
    before = contents(target)

    with pytest.raises(Conflict, match="not empty: it has rows in audit_log, teams"):
        copy(database, target)
    assert contents(target) == before


def test_one_copy_at_a_time(database: Database, caller: Caller, target: Database):
    """The second one says so instead of waiting."""
    with target.alone("copy"), pytest.raises(Conflict, match="Another copy"):
        copy(database, target)


def test_a_rehearsal_counts_and_changes_nothing(database: Database, caller: Caller, unborn: str):
    """It does not even make a table."""
    everything.fill(database, caller, rows=100)
    with closing(Database(unborn)) as target:
        report = copy_to_postgresql.rehearse(database, target, vectors="rebuild", progress=lambda *_: None)

    assert report.dry_run
    assert report.ok
    assert report.tables["memory_items"].rows == 80
    assert migrations.current(unborn) is None


def test_the_next_memory_is_numbered_behind_every_one_there_ever_was(
    database: Database, caller: Caller, target: Database
):
    """Also behind one that was deleted: numbers are not given again."""
    ids = remember(database, caller, 3)
    with database.write() as connection:
        highest = connection.scalar(select(func.max(models.memory_items.c.seq)))
        memories.remove(connection, caller, ids[-1], precondition=lambda _: True)
    copy(database, target)

    remember(target, new_team(target, "b"), 1)

    with target.read() as connection:
        assert connection.scalar(select(func.max(models.memory_items.c.seq))) == highest + 1


def test_vectors_that_are_kept_leave_the_outbox_as_it_was(database: Database, caller: Caller, target: Database):
    """What waited waits on, deletions too, and what had been set aside stays so; claims of the old server are over."""
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


def test_vectors_that_are_made_anew_have_every_memory_waiting(database: Database, caller: Caller, target: Database):
    """Whatever the source's index knew."""
    ids = remember(database, caller, 3)
    with database.write() as connection:
        connection.execute(models.vector_outbox.delete())

    copy(database, target)

    assert [(memory_id, operation) for memory_id, operation, *_ in outbox(target)] == [
        (each, "upsert") for each in sorted(ids)
    ]


def test_what_serves_a_postgresql_is_noticed(target: Database, unborn: str):
    """A source must not be written to behind the copy's back."""
    with usage_lock.alone(unborn):
        pass
    with target.read(), pytest.raises(Conflict, match="stop it first"), usage_lock.alone(unborn):
        pass


def test_a_database_of_an_older_version_is_not_touched(database: Database, target: Database):
    """Its owner upgrades it, on purpose."""
    migrations.downgrade(target.url, "0002")

    with pytest.raises(migrations.WrongRevision, match="db upgrade"):
        copy_to_postgresql.prepare(target.url, None)
