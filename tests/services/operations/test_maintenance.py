"""Maintenance: deleted text is in no file, the file shrinks, the log is empty, and twice is safe."""

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
from app.store.fulltext import Filters
from app.store.models import metadata
from tests.services import library
from tests.services.library import Library
from tests.store import raw_writer
from tests.stores import Stores

MARKER = "xylophonemarkerword"
MARKERS = [MARKER, "蝾螈标记"]


@pytest.fixture
def books(stores: Stores, tmp_path: Path) -> Iterator[Library]:
    (tmp_path / "data").mkdir()
    with library.opened(stores, tmp_path / "data") as opened:
        yield opened


def kept_in(database: Database, marker: str) -> list[str]:
    """Return where a text is found: in files of SQLite's, with the free pages and the log; in PostgreSQL's tables."""
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
    """Return the files of a folder in which a text is found, as it is or as FTS5 keeps its words."""
    return [path.name for path in folder.rglob("*") if path.is_file() and marker.encode() in path.read_bytes()]


def fill(books: Library) -> str:
    """Write memories with the markers among others, in a session, and return the session."""
    with books.database.write() as connection:
        start = sessions.Start(project_id=books.project_id, external_session_id="run")
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
    bulk_delete.remove_matching(books.database, books.caller, (), Filters(types=("marked",)), dry_run=False)


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
    with closing(raw_writer.opened(books.database.url)) as raw:
        raw.run("DELETE FROM memory_items WHERE type = 'marked'")


WAYS = [by_filter, one_by_one, by_session, by_project, by_purge, by_retention, by_another_program]


@pytest.mark.sqlite
@pytest.mark.parametrize("forget", WAYS)
def test_deleted_text_is_nowhere_afterwards(books: Library, forget: Callable[[Library, str], None]):
    """Whichever way it was deleted: not in rows, full text, neighbours, SQLite's free pages or its log."""
    session_id = fill(books)
    assert kept_in(books.database, MARKER) != []

    forget(books, session_id)
    maintenance.run(books.database)

    assert [kept_in(books.database, marker) for marker in MARKERS] == [[], []]
    assert fulltext_check.faults(books.database) == []


@pytest.mark.sqlite
def test_the_file_gives_back_what_was_deleted(books: Library):
    """Twenty megabytes in, most of them out again."""
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
def test_the_log_is_empty_afterwards(books: Library):
    """Also when it had grown."""
    fill(books)
    maintenance.run(books.database)

    assert books.database.path.with_name("cmem.db-wal").stat().st_size == 0


@pytest.mark.sqlite
def test_a_reader_at_work_only_puts_the_log_off(books: Library, monkeypatch: pytest.MonkeyPatch):
    """The report says so, and the rest is done."""
    monkeypatch.setattr("app.store.maintenance.sqlite_compaction._CHECKPOINT_TRIES", 1)
    fill(books)
    with books.database.read() as connection:
        connection.exec_driver_sql("SELECT count(*) FROM memory_items").scalar_one()
        assert maintenance.run(books.database).log_emptied is False

    assert maintenance.run(books.database).log_emptied is True


def test_a_second_run_has_nothing_to_do(books: Library):
    """Twice is safe."""
    by_retention(books, fill(books))
    assert maintenance.run(books.database).expired_memories == 40

    report = maintenance.run(books.database)

    assert (report.expired_memories, report.idempotency_records, report.operations) == (0, 0, 0)


def runs(books: Library) -> int:
    with books.database.read() as connection:
        sql = "SELECT count(*) FROM audit_log WHERE action = 'maintenance.run'"
        return int(connection.exec_driver_sql(sql).scalar_one())


def test_a_server_runs_it_a_day_after_the_last_time(books: Library, monkeypatch: pytest.MonkeyPatch):
    """And a young one a day after it began."""
    daily = maintenance.Daily(books.database)
    daily.look()
    assert runs(books) == 0
    later = now_ms() + 86_400_001
    monkeypatch.setattr(maintenance, "now_ms", lambda: later)

    daily.look()

    assert runs(books) == 1


def test_several_servers_run_it_once(books: Library, monkeypatch: pytest.MonkeyPatch):
    """Whoever comes while another is at it leaves it to him, and whoever comes later finds it done."""
    later = now_ms() + 86_400_001
    monkeypatch.setattr(maintenance, "now_ms", lambda: later)
    begun = threading.Barrier(8)

    def look(_: int) -> None:
        with closing(Database(books.database.url)) as mine:
            begun.wait(timeout=30)
            maintenance.Daily(mine).look()

    with ThreadPoolExecutor(8) as replicas:
        list(replicas.map(look, range(8)))

    assert runs(books) == 1


def test_a_server_that_comes_while_another_is_at_it_does_not_wait(books: Library, monkeypatch: pytest.MonkeyPatch):
    """It has other things to do."""
    later = now_ms() + 86_400_001
    monkeypatch.setattr(maintenance, "now_ms", lambda: later)

    with closing(Database(books.database.url)) as other, other.alone("maintenance", wait=False) as is_others:
        maintenance.Daily(books.database).look()

    assert (is_others, runs(books)) == (True, 0)


def test_a_server_that_stops_ends_it_where_it_is(books: Library, monkeypatch: pytest.MonkeyPatch):
    """The next start goes on: it is still due."""
    later = now_ms() + 86_400_001
    monkeypatch.setattr(maintenance, "now_ms", lambda: later)
    daily = maintenance.Daily(books.database)
    daily.stop()

    daily.look()

    assert runs(books) == 0


def test_projects_stay_as_they_are(books: Library):
    """Nothing but what was deleted or has expired is lost."""
    session_id = fill(books)
    by_filter(books, session_id)
    maintenance.run(books.database)

    with books.database.read() as connection:
        assert projects.get(connection, books.caller, books.project_id)
    assert len(books.ask("before", limit=100).hits) == 40
