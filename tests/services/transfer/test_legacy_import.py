"""What an import of a claude-mem database stores, also when it is repeated."""

import os
import shutil
import signal
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from app.caller import Caller, server_owner
from app.legacy import reader
from app.legacy.shapes import LegacyMemory, ReaderOptions
from app.services.identity import teams
from app.services.memories import memories
from app.services.projects import projects, sessions
from app.services.transfer import legacy_import
from app.services.transfer.legacy_import import Counts, Destination
from tests.legacy import builders
from tests.legacy.builders import MARCH

ALL = ("sessions", "observations", "summaries", "prompts")


@pytest.fixture
def caller(database) -> Caller:
    with database.write() as connection:
        return server_owner().within(teams.create(connection, server_owner(), name="default").id)


@pytest.fixture
def path(tmp_path):
    return tmp_path / "claude-mem.db"


@pytest.fixture
def source(path):
    with closing(builders.create(path)) as connection:
        builders.add_session(connection)
        yield connection


@pytest.fixture
def run(database, caller, path):
    def run_import(legacy: Path = path, *, dry_run: bool = False, **destination) -> legacy_import.LegacyImportReport:
        with reader.open_copy(legacy, ReaderOptions()) as opened:
            return legacy_import.run(
                database, caller, opened, Destination(**destination), dry_run=dry_run, progress=lambda done: None
            )

    return run_import


@pytest.fixture
def rows(database):
    def select(statement: str) -> list[tuple]:
        with database.read() as connection:
            return list(map(tuple, connection.exec_driver_sql(statement)))

    return select


def test_memory_keeps_its_fields_and_its_time(run, source, rows):
    """The time of the import is stored with the source."""
    builders.add_observation(
        source,
        "Retry storm",
        narrative="All at once.",
        facts='["Jitter"]',
        concepts='["gotcha"]',
        files_read='["a.py"]',
    )
    run()
    stored = rows(
        "SELECT kind, type, title, narrative, facts, concepts, files_read, platform_source, legacy_observation_id,"
        " created_at_epoch FROM memory_items"
    )
    assert stored == [
        (
            "observation",
            "bugfix",
            "Retry storm",
            "All at once.",
            '["Jitter"]',
            '["gotcha"]',
            '["a.py"]',
            "claude",
            1,
            MARCH,
        )
    ]
    assert rows("SELECT count(*) FROM memory_sources WHERE created_at_epoch > 1772439300000") == [(1,)]


def test_memory_belongs_to_its_session(run, source, rows):
    """The session is imported with its ids and times, and its memories reference it."""
    source.execute("UPDATE sdk_sessions SET completed_at_epoch = ?", (MARCH + 9,))
    builders.add_observation(source, "Retry storm")
    run()
    assert rows(
        "SELECT s.content_session_id, s.memory_session_id, s.started_at_epoch, s.ended_at_epoch"
        " FROM memory_items m JOIN server_sessions s ON s.id = m.server_session_id"
    ) == [("content-one", "memory-one", MARCH, MARCH + 9)]


def test_imported_memories_get_context_text(run, source, rows):
    """Adjacent memories of a session match each other's words, as if stored through the API."""
    builders.add_observation(source, "Which gasket?", narrative=None)
    builders.add_observation(source, "Copper", narrative=None)
    run()
    assert rows("SELECT neighbour_text FROM memory_items ORDER BY seq") == [("Copper",), ("Which gasket?",)]


def test_source_names_the_legacy_row(run, source, rows):
    """Each memory records its database, table and row."""
    builders.add_prompt(source, "Please stop the storm")
    report = run()
    assert rows("SELECT source_type, origin, legacy_table, legacy_id FROM memory_sources") == [
        ("user_prompt", report.origin, "user_prompts", "1")
    ]


def test_each_legacy_project_becomes_a_project(run, source, rows):
    """It is created when absent, with its own name in any script."""
    builders.add_observation(source, "One", project="客服助手")
    builders.add_observation(source, "Two", project="infra/edge.router")
    report = run()
    assert sorted(rows("SELECT name FROM projects")) == [("infra/edge.router",), ("shop",), ("客服助手",)]
    assert report.counts["projects"] == Counts(created=3, skipped=0, failed=0)


def test_import_is_audited_with_its_counts(run, source, rows):
    """The entry has the number of memories per project, and no text."""
    for title in ("One", "Two"):
        builders.add_observation(source, title)
    run()
    assert rows("SELECT count FROM audit_log WHERE action = 'memory.import'") == [(2,)]


def test_project_map_renames_projects(run, source, rows):
    """Rows of a mapped project go to the other one; all others are not affected."""
    builders.add_observation(source, "One")
    builders.add_observation(source, "Two", project="other")
    run(project_map={"shop": "store"})
    assert sorted(rows("SELECT title, name FROM memory_items m JOIN projects p ON p.id = m.project_id")) == [
        ("One", "store"),
        ("Two", "other"),
    ]


def test_into_receives_everything(run, source, rows):
    """All rows go to one project, and are linked to their sessions there."""
    builders.add_observation(source, "One")
    builders.add_observation(source, "Two", merged_into_project="other")
    run(into="archive")
    assert rows("SELECT name FROM projects") == [("archive",)]
    assert rows("SELECT count(*) FROM memory_items WHERE server_session_id IS NOT NULL") == [(2,)]


def test_merged_memory_loses_its_session(run, source, rows):
    """No session spans two projects, so the memory follows its project."""
    builders.add_observation(source, "Merged", merged_into_project="other")
    run()
    assert rows("SELECT server_session_id FROM memory_items") == [(None,)]


def test_second_run_creates_nothing(run, source, rows):
    """Existing rows are skipped."""
    builders.add_observation(source, "One")
    builders.add_summary(source, "Stop the storm")
    builders.add_prompt(source, "Please stop the storm")
    run()
    before = rows("SELECT count(*) FROM memory_items")
    report = run()
    assert rows("SELECT count(*) FROM memory_items") == before
    assert [report.counts[noun] for noun in ALL] == [Counts(created=0, skipped=1, failed=0)] * 4
    assert report.counts["projects"].created == 0


def test_memory_that_was_edited_here_is_not_imported_again(run, source, database, caller, rows):
    """A legacy row is recognised by its origin, whatever happened to the memory."""
    builders.add_observation(source, "One")
    run()
    ((memory_id,),) = rows("SELECT id FROM memory_items")
    with database.write() as connection:
        memories.change(connection, caller, memory_id, {"title": "Better"}, precondition=lambda memory: True)
    run()
    assert rows("SELECT title FROM memory_items") == [("Better",)]


def test_session_without_ids_is_recognised(run, source, rows):
    """It is identified by the row that it came from."""
    source.execute("UPDATE sdk_sessions SET content_session_id = ''")
    run()
    assert run().counts["sessions"] == Counts(created=0, skipped=1, failed=0)


def test_session_started_by_hooks_is_reused(run, source, database, caller, rows):
    """A session that this server already has receives its legacy memories."""
    builders.add_observation(source, "One")
    run(into="archive")
    source.execute("UPDATE sdk_sessions SET content_session_id = 'live', memory_session_id = NULL WHERE id = 1")
    ((project_id,),) = rows("SELECT id FROM projects")
    with database.write() as connection:
        sessions.start(connection, caller, sessions.NewSession(project_id=project_id, content_session_id="live"))
    assert run(into="archive").counts["sessions"] == Counts(created=0, skipped=1, failed=0)


def test_grown_copy_adds_only_new_rows(run, source, path, tmp_path, rows):
    """A later copy of the same database may have another name."""
    builders.add_observation(source, "One")
    run()
    builders.add_observation(source, "Two")
    later = Path(shutil.copyfile(path, tmp_path / "later.db"))
    shutil.copyfile(f"{path}-wal", f"{later}-wal")
    assert run(later).counts["observations"] == Counts(created=1, skipped=1, failed=0)


def test_databases_with_equal_row_ids_do_not_collide(run, source, tmp_path, rows):
    """Two databases both have an observation 1, and one project can hold both."""
    builders.add_observation(source, "Mine")
    other = tmp_path / "other.db"
    with closing(builders.create(other)) as theirs:
        builders.add_session(theirs, "theirs")
        builders.add_observation(theirs, "Theirs", memory_session_id="memory-theirs")
    run()
    run(other)
    assert sorted(rows("SELECT title, legacy_observation_id FROM memory_items")) == [("Mine", 1), ("Theirs", 1)]


def test_rows_of_equal_time_and_title_are_both_kept(run, source, rows):
    """Only equal content is the same memory."""
    for narrative in ("first", "second"):
        builders.add_observation(source, "Same", narrative=narrative)
    run()
    assert rows("SELECT narrative FROM memory_items ORDER BY created_at_epoch, seq") == [("first",), ("second",)]


def test_every_row_is_counted_once(run, source):
    """Created, skipped and failed add up to the rows of the table, and each skipped row has a warning."""
    builders.add_observation(source, "Kept")
    builders.add_observation(source, None)
    builders.add_observation(source, "Bookkeeping", project="observer-sessions")
    report = run()
    assert report.counts["observations"] == Counts(created=1, skipped=2, failed=0)
    assert [(warning.table, warning.id) for warning in report.warnings] == [("observations", 2), ("observations", 3)]


def test_dry_run_counts_the_same_and_writes_nothing(run, source, rows):
    """Duplicates among the rows included, with an empty and with a filled database."""
    builders.add_observation(source, "One")
    builders.add_observation(source, "Two", memory_session_id="gone", content_hash="aa")
    builders.add_observation(source, "Two", memory_session_id="lost", content_hash="aa")
    builders.add_prompt(source, "Again")
    builders.add_prompt(source, "Again")
    expected = run(dry_run=True)
    assert rows("SELECT count(*) FROM projects") == [(0,)]
    actual = run()
    assert (expected.counts, expected.warnings) == (actual.counts, actual.warnings)
    builders.add_observation(source, "Three")
    builders.add_session(source, "two")
    assert run(dry_run=True).counts == run().counts


def test_rejected_row_is_counted_as_failed(database, caller, rows):
    """A memory without text fails alone, and the others are imported."""

    class Source:
        origin = "claude-mem:test"

        def sessions(self):
            return iter(())

        def memories(self):
            for number, text in enumerate(("hello", None), start=1):
                yield LegacyMemory(
                    kind="prompt",
                    legacy_table="user_prompts",
                    legacy_id=number,
                    project="shop",
                    session_id=None,
                    platform_source="claude",
                    created_at_epoch_ms=MARCH,
                    type="prompt",
                    text=text,
                )

    report = legacy_import.run(database, caller, Source(), Destination(), dry_run=False, progress=lambda done: None)
    assert report.counts["prompts"] == Counts(created=1, skipped=0, failed=1)
    assert [(warning.id, warning.message.split(":")[0]) for warning in report.warnings] == [(2, "failed")]
    assert rows("SELECT text FROM memory_items") == [("hello",)]


def test_memories_of_the_server_tables_are_counted_by_kind(run, tmp_path, rows):
    """They have text ids, which their sources keep."""
    path = tmp_path / "newer.db"
    with closing(builders.create(path, builders.CURRENT | builders.SERVER)) as source:
        builders.insert(source, "projects", id="p", name="shop")
        for kind in ("manual", "summary"):
            builders.insert(source, "memory_items", id=kind, project_id="p", kind=kind, type="note", text="words")
    report = run(path)
    assert (report.counts["observations"].created, report.counts["summaries"].created) == (1, 1)
    assert sorted(rows("SELECT source_type, legacy_id FROM memory_sources")) == [
        ("manual", "manual"),
        ("session_summary", "summary"),
    ]


def test_existing_project_is_found_by_its_slug(run, source, database, caller, rows):
    """A target may be named like on the command line."""
    with database.write() as connection:
        projects.create(connection, caller, name="The Archive", slug="archive")
    assert run(into="archive").counts["projects"] == Counts(created=0, skipped=1, failed=0)


def test_progress_reaches_the_number_of_rows(database, caller, path, source):
    """It is reported after each transaction."""
    for number in range(legacy_import.BATCH + 1):
        builders.add_observation(source, f"row {number}")
    reached: list[int] = []
    with reader.open_copy(path, ReaderOptions()) as opened:
        legacy_import.run(database, caller, opened, Destination(), dry_run=False, progress=reached.append)
    assert reached == [1, legacy_import.BATCH + 1, legacy_import.BATCH + 2]


KILLED_HALFWAY = """
import os, signal, sys
from pathlib import Path
from app.caller import server_owner
from app.legacy import reader
from app.legacy.shapes import LegacyMemory, ReaderOptions
from app.services.identity import teams
from app.services.transfer import legacy_import
from app.store.database import Database

database = Database(sys.argv[1])
with database.read() as connection:
    caller = server_owner().within(teams.find(connection, server_owner(), "default").id)

def die_halfway(done):
    if done > 600:
        os.kill(os.getpid(), signal.SIGKILL)

with reader.open_copy(Path(sys.argv[2]), ReaderOptions()) as source:
    legacy_import.run(database, caller, source, legacy_import.Destination(), dry_run=False, progress=die_halfway)
"""


def test_killed_import_is_completed_by_the_next_run(run, source, database, path, tmp_path, rows):
    """A killed run leaves whole transactions, and the next one imports the rest."""
    for number in range(1_000):
        builders.add_observation(source, f"row {number}")
    killed = subprocess.run(
        [sys.executable, "-c", KILLED_HALFWAY, database.url, path],
        check=False,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    )
    assert killed.returncode == -signal.SIGKILL
    ((half,),) = rows("SELECT count(*) FROM memory_items")
    assert 0 < half < 1_000
    report = run()
    assert report.counts["observations"] == Counts(created=1_000 - half, skipped=half, failed=0)
    assert rows("SELECT count(*), count(DISTINCT title), count(DISTINCT legacy_observation_id) FROM memory_items") == [
        (1_000, 1_000, 1_000)
    ]
    assert rows("SELECT count(*) FROM memory_sources") == [(1_000,)]
