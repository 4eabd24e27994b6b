"""Full text is rebuilt while the server goes on, and is intact afterwards, however it was corrupted."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from app.store.database import Database
from app.store.fulltext import SearchScope
from app.store.fulltext import dialects as full_text
from app.store.maintenance import MaintenanceBackend, dialects, postgresql, sqlite_rebuilding
from tests.databases import Databases, database_url
from tests.store import corruption
from tests.store.raw_writer import RawWriter

ROWS = 60
WRITE_ONE = text("""
    INSERT INTO memory_items(id, team_id, project_id, dedup_scope, version, kind, type, text, facts, concepts,
      files_read, files_modified, metadata, platform_source, content_hash, created_at_epoch, updated_at_epoch)
    VALUES (:id, 'a', 'a1', '', 1, 'manual', 'manual', 'meanwhile', '[]', '[]', '[]', '[]', '{}', 'claude', :id, 1, 1)
""")


@pytest.fixture
def database(databases: Databases, tmp_path: Path) -> Iterator[Database]:
    """The database, opened as the role that owns its tables, which alone can repair altered objects."""
    with database_url(databases, tmp_path), closing(Database(databases.owner_url(tmp_path))) as opened:
        yield opened


@pytest.fixture
def maintenance(database: Database) -> MaintenanceBackend:
    """The maintenance module of the dialect."""
    return dialects.of(database.dialect)


@pytest.fixture
def library(raw: RawWriter, monkeypatch: pytest.MonkeyPatch) -> RawWriter:
    """The raw writer, after it has written memories for several slices."""
    for dialect in (sqlite_rebuilding, postgresql):
        monkeypatch.setattr(dialect, "_SLICE_ROWS", 10)
    for number in range(ROWS):
        raw.insert("memory_items", team_id="a", project_id="a1", text=corruption.sample_text(number))
    return raw


def count_hits(database: Database, word: str) -> int:
    with database.read() as connection:
        hits = full_text.of(database.dialect).find(connection, SearchScope("a", ("a1",)), (((word,),),), limit=10_000)
        return len(hits)


@pytest.mark.parametrize("corrupt", corruption.ANY)
def test_rebuild_repairs_every_corruption(
    library: RawWriter, database: Database, maintenance: MaintenanceBackend, corrupt: Callable[[RawWriter], None]
):
    """However full text was corrupted, afterwards it is intact and every memory is found."""
    corrupt(library)

    maintenance.rebuild(database)

    assert (maintenance.faults(database), count_hits(database, corruption.WORD)) == ([], ROWS)


def test_second_rebuild_changes_nothing(library: RawWriter, database: Database, maintenance: MaintenanceBackend):
    """The schema stays the same, and full text intact."""
    maintenance.rebuild(database)
    schema = library.schema()

    assert maintenance.rebuild(database) == ROWS

    assert library.schema() == schema
    assert maintenance.faults(database) == []


def test_writes_during_a_rebuild_are_indexed(library: RawWriter, database: Database, maintenance: MaintenanceBackend):
    """Inserts, updates and deletes between slices, in filled ones or not, are reflected in the new index."""
    writes = iter(
        [
            lambda: library.run("UPDATE memory_items SET text = 'early change' WHERE seq = 2"),
            lambda: library.run("UPDATE memory_items SET text = 'late change' WHERE seq = 55"),
            lambda: library.run("DELETE FROM memory_items WHERE seq IN (3, 54)"),
            lambda: library.insert("memory_items", team_id="a", project_id="a1", text="new memory"),
        ]
    )

    maintenance.rebuild(database, lambda _: next(writes, lambda: None)())

    assert next(writes, None) is None
    assert maintenance.faults(database) == []
    assert [count_hits(database, word) for word in ("early", "late", "memory", corruption.WORD)] == [1, 1, 1, ROWS - 4]


def test_writers_go_on_during_a_rebuild(library: RawWriter, database: Database, maintenance: MaintenanceBackend):
    """No write fails or is lost while slices are filled."""
    done = threading.Event()
    written: list[int] = []

    def write(writer: int) -> None:
        number = 0
        while not done.is_set() and number < 200:
            with database.write() as connection:
                connection.execute(WRITE_ONE, {"id": f"{writer}-{number}"})
            number += 1
        written.append(number)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    maintenance.rebuild(database)
    done.set()
    for thread in threads:
        thread.join()

    assert (len(written), maintenance.faults(database)) == (4, [])
    assert count_hits(database, "meanwhile") == sum(written) > 0


def test_searches_use_the_old_index_during_a_rebuild(
    library: RawWriter, database: Database, maintenance: MaintenanceBackend
):
    """After every slice, all memories are still found."""
    answers: list[int] = []

    maintenance.rebuild(database, lambda _: answers.append(count_hits(database, corruption.WORD)))

    assert answers == [ROWS] * (ROWS // 10)


def test_killed_rebuild_starts_over(library: RawWriter, database: Database, maintenance: MaintenanceBackend):
    """The next rebuild clears what an interrupted one left behind."""

    def interrupt(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        maintenance.rebuild(database, interrupt)
    library.run("UPDATE memory_items SET text = 'early change' WHERE seq = 2")

    maintenance.rebuild(database)

    assert (maintenance.faults(database), count_hits(database, "early")) == ([], 1)


def test_concurrent_rebuilds_take_turns(library: RawWriter, database: Database, maintenance: MaintenanceBackend):
    """A second rebuild waits for the first, and neither fails."""
    counts: list[int] = []
    second = threading.Thread(target=lambda: counts.append(maintenance.rebuild(database)))

    counts.append(maintenance.rebuild(database, lambda done: second.start() if done == 10 else None))
    second.join()

    assert (counts, maintenance.faults(database)) == ([ROWS, ROWS], [])
