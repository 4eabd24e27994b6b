"""A copy into PostgreSQL holds everything the source does, however often interrupted, or says what is missing."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import func, select, text

from app.caller import EVERYTHING, Caller, server_owner
from app.errors import Conflict, Unavailable
from app.legacy import reader
from app.legacy.shapes import Rules
from app.services import copying, exporting, legacy_import, memories, operations, projects, teams
from app.services.copying import Report, Vectors
from app.services.legacy_import import Destination
from app.store import migrations, models, presence
from app.store.database import Database
from app.store.moving.steps import TABLES
from tests.conftest import make_key
from tests.legacy import builders
from tests.postgresql import SERVER, Cluster
from tests.services import everything
from tests.serving import ROOT
from tests.store.raw_writer import RawWriter


@pytest.fixture
def target(unborn: str) -> Iterator[Database]:
    """An empty PostgreSQL, ready to take a copy in."""
    copying.prepare(unborn, SERVER)
    with closing(Database(unborn)) as opened:
        yield opened


@pytest.fixture
def caller(database: Database) -> Caller:
    """The owner of a team in the source."""
    return new_team(database, "a")


@pytest.fixture
def raw(database: Database) -> Iterator[RawWriter]:
    """Another program that writes into the source, with a team, a project and a session."""
    with closing(RawWriter(database.path)) as writer:
        writer.insert("teams", id="t")
        writer.insert("projects", id="p", team_id="t")
        writer.insert("server_sessions", id="s", team_id="t", project_id="p")
        yield writer


def new_team(database: Database, name: str) -> Caller:
    with database.write() as connection:
        return server_owner().within(teams.create(connection, server_owner(), name=name).id)


def copy(source: Database, target: Database, vectors: Vectors = "rebuild") -> Report:
    return copying.copy(source, target, vectors=vectors, progress=lambda what, done, total: None)


def copy_until(source: Database, target: Database, rows: int) -> None:
    """Copy that many rows at least, and be interrupted."""

    def interrupt(what: str, done: int, total: int) -> None:
        if what == "copying" and done >= rows:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        copying.copy(source, target, vectors="rebuild", progress=interrupt)


def copied(report: Report) -> dict[str, int]:
    return {name: table.copied for name, table in report.tables.items() if table.copied}


def contents(database: Database) -> dict[str, list[tuple]]:
    """All rows of all tables that are copied, without the help of what copies and compares them."""
    with database.read() as connection:
        return {
            table.name: sorted((tuple(row) for row in connection.execute(select(table))), key=repr) for table in TABLES
        }


def exported(database: Database, caller: Caller) -> bytes:
    with database.read() as connection:
        wanted = exporting.chosen(connection, caller, None)
    return b"".join(exporting.chunks(database, caller, wanted))


def outbox(database: Database) -> list[tuple]:
    table = models.vector_outbox.c
    with database.read() as connection:
        found = select(table.memory_id, table.operation, table.version, table.failed).order_by(table.memory_id)
        return [tuple(row) for row in connection.execute(found)]


def remember(database: Database, caller: Caller, count: int) -> list[str]:
    """Make a project with so many memories, and return their ids."""
    with database.write() as connection:
        project = projects.create(connection, caller, name="p")
        standard = {"project_id": project.id, "kind": "manual", "type": "manual"}
        texts = (f"lighthouse keeper {number}" for number in range(count))
        return [memories.add(connection, caller, memories.NewMemory(**standard, text=each))[0].id for each in texts]


def remember_many(database: Database, caller: Caller, count: int) -> None:
    """Put a memory there so many times, past the services, which would take long; leave nobody connected."""
    remember(database, caller, 1)
    with database.write() as connection:
        [row] = connection.execute(select(models.memory_items)).mappings().all()
        own = ({"seq": number, "id": str(number), "content_hash": str(number)} for number in range(2, count + 1))
        connection.execute(models.memory_items.insert(), [{**row, **each} for each in own])
    database.close()


def fill_every_table(database: Database, caller: Caller) -> None:
    """Leave no table without a row."""
    everything.fill(database, caller, rows=200)
    make_key(database, caller, scopes=(EVERYTHING,), name="ключ")
    month = {"key_id": "k", "count": 7}
    with database.write() as connection:
        operations.create(connection, caller, "vectors.verify", project_id=None, arguments={"dryRun": True})
        for table, row in {
            models.team_members: {"user_id": "анна", "role": "owner", "updated_at_epoch": 1},
            models.idempotency_records: {
                "key_id": "k",
                "idempotency_key": "i",
                "route": "r",
                "body_hash": "h",
                "status": 201,
                "ids": ["a", "b"],
            },
            models.audit_retention: {"id": 1, "before_epoch": 5},
            models.usage_counters: {**month, "month": "2026-11", "kind": "requests", "team_id": caller.team_id},
            models.request_counters: {**month, "period": "2026-11", "updated_at_epoch": 1},
        }.items():
            usual = {"team_id": caller.team_id, "created_at_epoch": 1}
            names = table.c.keys()
            values = {name: value for name, value in {**usual, **row}.items() if name in names}
            connection.execute(table.insert().values(values))


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
    copying.prepare(target.url, SERVER)

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
        report = copying.rehearse(database, target, vectors="rebuild", progress=lambda *_: None)

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


@pytest.mark.sqlite
def test_what_postgresql_cannot_keep_is_replaced_and_named(database: Database, raw: RawWriter, target: Database):
    """NUL, bytes that are no UTF-8, a text in a column of numbers: the row arrives, and the report says so."""
    place = {"team_id": "t", "project_id": "p"}
    raw.insert("memory_items", **place, id="nul", text="be\0fore", superseded_by=None)
    raw.insert("memory_items", **place, id="surrogate")
    raw.run("UPDATE memory_items SET title = CAST(x'61EDA08062' AS TEXT) WHERE id = 'surrogate'")
    raw.insert("agent_events", **place, id="number", occurred_at_epoch="yesterday", payload='{"a": "\0"}')
    raw.insert("memory_items", **place, id="fine", text="fine")
    raw.run("DELETE FROM vector_outbox")

    report = copy(database, target, "keep")

    assert [(row.table, row.key[-1], row.columns) for row in report.replaced] == [
        ("agent_events", "number", ["payload", "occurred_at_epoch"]),
        ("memory_items", "1", ["text"]),
        ("memory_items", "2", ["title"]),
    ]
    assert (report.ok, report.replaced_rows) == (True, 3)
    item = models.memory_items.c
    with target.read() as connection:
        assert connection.execute(select(item.text, item.title).order_by(item.seq)).all() == [
            ("be\ufffdfore", None),
            (None, "a\ufffd\ufffd\ufffdb"),
            ("fine", None),
        ]
    assert [memory_id for memory_id, *_ in outbox(target)] == ["nul", "surrogate"], "their vectors are of other texts"


@pytest.mark.sqlite
def test_damaged_json_arrives_as_it_is(database: Database, raw: RawWriter, target: Database):
    """It is a text; reading it gives the empty value, as before."""
    raw.insert("memory_items", team_id="t", project_id="p", facts='["cut of', metadata="", concepts='["\\u0000"]')

    report = copy(database, target)

    with target.read() as connection:
        kept = connection.execute(text("SELECT facts, metadata, concepts FROM memory_items")).one()
    assert tuple(kept) == ('["cut of', "", '["\\u0000"]')
    assert (report.ok, report.replaced_rows) == (True, 0)


@pytest.mark.sqlite
def test_a_row_that_postgresql_refuses_is_named_and_the_others_arrive(
    database: Database, raw: RawWriter, target: Database
):
    """A parent went while foreign keys were off: the copy goes on, and does not pass for whole."""
    for number in range(20):
        raw.insert("agent_events", id=f"event-{number:02}", team_id="t", project_id="p")
    raw.insert("projects", id="gone", team_id="t")
    raw.insert("agent_events", id="event-07b", team_id="t", project_id="gone")
    raw.run("DELETE FROM projects WHERE id = 'gone'")

    report = copy(database, target)

    assert [line.split(":")[0] for line in report.refused] == ["agent_events event-07b"]
    assert [name for name, table in report.tables.items() if not table.same] == ["agent_events"]
    assert not report.ok
    assert copied(report)["agent_events"] == len(contents(target)["agent_events"]) == 20


@pytest.mark.sqlite
def test_a_memory_may_be_replaced_by_one_that_comes_later_or_by_itself(
    database: Database, raw: RawWriter, target: Database
):
    """Whatever a table holds at once can be refused row by row: it is set when all are there."""
    for memory_id in ("old", "new", "own"):
        raw.insert("memory_items", id=memory_id, team_id="t", project_id="p")
    raw.run("UPDATE memory_items SET superseded_by = 'new' WHERE id = 'old'")
    raw.run("UPDATE memory_items SET superseded_by = 'own' WHERE id = 'own'")

    assert copy(database, target).ok
    assert contents(target) == contents(database)


def test_what_serves_a_postgresql_is_noticed(target: Database, unborn: str):
    """A source must not be written to behind the copy's back."""
    with presence.alone(unborn):
        pass
    with target.read(), pytest.raises(Conflict, match="stop it first"), presence.alone(unborn):
        pass


def test_a_database_of_an_older_version_is_not_touched(database: Database, target: Database):
    """Its owner upgrades it, on purpose."""
    migrations.downgrade(target.url, "0002")

    with pytest.raises(migrations.WrongRevision, match="db upgrade"):
        copying.prepare(target.url, None)
