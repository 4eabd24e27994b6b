"""Maintenance removes deleted text from every file, shrinks the database, empties the WAL, and can be repeated."""

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from app.clock import now_ms
from app.services.deletion import bulk_delete, retention
from app.services.deletion.retention_rules import Rule
from app.services.memories import memories
from app.services.operations import fulltext_check, maintenance
from app.services.projects import projects, sessions
from app.store.database import Database
from app.store.fulltext import MemoryFilters
from app.store.models import metadata
from tests.databases import Databases
from tests.services import library
from tests.services.library import Library
from tests.store import raw_writer

MARKER = "xylophonemarkerword"
MARKERS = [MARKER, "蝾螈标记"]


@pytest.fixture
def books(databases: Databases, tmp_path: Path) -> Iterator[Library]:
    (tmp_path / "data").mkdir()
    with library.opened(databases, tmp_path / "data") as opened:
        yield opened


def kept_in(database: Database, marker: str) -> list[str]:
    """Return where a text is stored: in which SQLite files, free pages and WAL included, or PostgreSQL tables."""
    if database.dialect == "sqlite":
        return holding(database.path.parent, marker)
    with database.read() as connection:
        return [
            table
            for table in (*metadata.tables, "memory_items_fts")
            if connection.scalar(
                text(f"SELECT count(*) FROM {table} AS kept WHERE strpos(kept::text, :marker) > 0"), {"marker": marker}
            )
        ]


def holding(folder: Path, marker: str) -> list[str]:
    """Return the files of a folder that contain a text, either verbatim or as FTS5 stores its words."""
    return [path.name for path in folder.rglob("*") if path.is_file() and marker.encode() in path.read_bytes()]


def fill(books: Library) -> str:
    """Store memories with and without the markers in one session; return the session."""
    with books.database.write() as connection:
        start = sessions.NewSession(project_id=books.project_id, external_session_id="run")
        session, _ = sessions.start(connection, books.caller, start)
    for number in range(40):
        books.remember(f"before {number}", server_session_id=session.id)
        books.remember(
            f"{MARKER} 蝾螈标记 {number}",
            type="marked",
            server_session_id=session.id,
            facts=[MARKER],
            concepts=["蝾螈标记"],
            created_at_epoch=now_ms() - 10 * 86_400_000,
        )
    return session.id


def by_filter(books: Library, session_id: str) -> None:
    bulk_delete.remove_matching(books.database, books.caller, (), MemoryFilters(types=("marked",)), dry_run=False)


def one_by_one(books: Library, session_id: str) -> None:
    with books.database.write() as connection:
        sql = "SELECT id FROM memory_items WHERE type = 'marked'"
        for memory_id in connection.exec_driver_sql(sql).scalars().all():
            memories.remove(connection, books.caller, memory_id, precondition=lambda _: True)


def by_session(books: Library, session_id: str) -> None:
    bulk_delete.remove_session(books.database, books.caller, session_id)


def by_project(books: Library, session_id: str) -> None:
    bulk_delete.remove_project(books.database, books.caller, books.project_id)


def by_purge(books: Library, session_id: str) -> None:
    bulk_delete.remove_memories(books.database, books.caller, books.project_id)


def by_retention(books: Library, session_id: str) -> None:
    with books.database.write() as connection:
        retention.put(connection, books.caller, books.project_id, [Rule(types=["marked"], max_age_days=5)])


def by_another_program(books: Library, session_id: str) -> None:
    with closing(raw_writer.connect(books.database.url)) as raw:
        raw.run("DELETE FROM memory_items WHERE type = 'marked'")


WAYS = [by_filter, one_by_one, by_session, by_project, by_purge, by_retention, by_another_program]


@pytest.mark.sqlite
@pytest.mark.parametrize("forget", WAYS)
def test_no_trace_of_deleted_text_remains(books: Library, forget: Callable[[Library, str], None]):
    """However it was deleted: not in rows, full text, context text, SQLite's free pages or its WAL."""
    session_id = fill(books)
    assert kept_in(books.database, MARKER) != []

    forget(books, session_id)
    maintenance.run(books.database)

    assert [kept_in(books.database, marker) for marker in MARKERS] == [[], []]
    assert fulltext_check.faults(books.database) == []


@pytest.mark.sqlite
def test_file_shrinks_after_a_bulk_delete(books: Library):
    """Of twenty megabytes, most are released."""
    books.remember_all(
        [{"narrative": f"{number} " + f"word{number} " * 2_000, "type": "marked"} for number in range(400)]
    )
    maintenance.run(books.database)
    before = books.database.path.stat().st_size

    by_filter(books, "")
    report = maintenance.run(books.database)

    assert report.freed_pages > 1_000
    assert books.database.path.stat().st_size < before / 5


@pytest.mark.sqlite
def test_wal_is_empty_afterwards(books: Library):
    """Even after it had grown."""
    fill(books)
    maintenance.run(books.database)

    assert books.database.path.with_name("cmem.db-wal").stat().st_size == 0


@pytest.mark.sqlite
def test_active_reader_only_delays_the_checkpoint(books: Library, monkeypatch: pytest.MonkeyPatch):
    """The report says so, and all other steps are done."""
    monkeypatch.setattr("app.store.maintenance.sqlite_compaction._CHECKPOINT_TRIES", 1)
    fill(books)
    with books.database.read() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM memory_items").scalar_one()
        assert maintenance.run(books.database).log_emptied is False

    assert maintenance.run(books.database).log_emptied is True


def test_second_run_has_nothing_to_do(books: Library):
    """Maintenance is idempotent."""
    by_retention(books, fill(books))
    assert maintenance.run(books.database).expired_memories == 40

    report = maintenance.run(books.database)

    assert (report.expired_memories, report.idempotency_records, report.operations) == (0, 0, 0)


def runs(books: Library) -> int:
    with books.database.read() as connection:
        sql = "SELECT count(*) FROM audit_log WHERE action = 'maintenance.run'"
        return int(connection.exec_driver_sql(sql).scalar_one())


def test_server_runs_it_a_day_after_the_last_run(books: Library, monkeypatch: pytest.MonkeyPatch):
    """A new server runs it a day after its first team was created."""
    daily = maintenance.DailyMaintenance(books.database)
    daily.run_if_due()
    assert runs(books) == 0
    later = now_ms() + 86_400_001
    monkeypatch.setattr(maintenance, "now_ms", lambda: later)

    daily.run_if_due()

    assert runs(books) == 1


def test_several_servers_run_it_once(books: Library, monkeypatch: pytest.MonkeyPatch):
    """Servers that come while another is running it skip it, and later ones find it done."""
    later = now_ms() + 86_400_001
    monkeypatch.setattr(maintenance, "now_ms", lambda: later)
    begun = threading.Barrier(8)

    def run(_: int) -> None:
        with closing(Database(books.database.url)) as mine:
            begun.wait(timeout=30)
            maintenance.DailyMaintenance(mine).run_if_due()

    with ThreadPoolExecutor(8) as replicas:
        list(replicas.map(run, range(8)))

    assert runs(books) == 1


def test_server_does_not_wait_while_another_runs_it(books: Library, monkeypatch: pytest.MonkeyPatch):
    """It returns at once and has run nothing."""
    later = now_ms() + 86_400_001
    monkeypatch.setattr(maintenance, "now_ms", lambda: later)

    with closing(Database(books.database.url)) as other, other.advisory_lock("maintenance", wait=False) as is_locked:
        maintenance.DailyMaintenance(books.database).run_if_due()

    assert (is_locked, runs(books)) == (True, 0)


def test_stopping_server_abandons_the_run(books: Library, monkeypatch: pytest.MonkeyPatch):
    """It is still due after the next start."""
    later = now_ms() + 86_400_001
    monkeypatch.setattr(maintenance, "now_ms", lambda: later)
    daily = maintenance.DailyMaintenance(books.database)
    daily.stop()

    daily.run_if_due()

    assert runs(books) == 0


def test_projects_are_left_as_they_are(books: Library):
    """Only deleted and expired memories are gone."""
    session_id = fill(books)
    by_filter(books, session_id)
    maintenance.run(books.database)

    with books.database.read() as connection:
        assert projects.get(connection, books.caller, books.project_id)
    assert len(books.ask("before", limit=100).hits) == 40
