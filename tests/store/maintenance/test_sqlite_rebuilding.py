"""Full text is rebuilt while the server goes on, and is whole afterwards whatever happened to it."""

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
    """The database as who owns its tables has it: what was altered, only he can mend."""
    with database_url(databases, tmp_path), closing(Database(databases.owner_url(tmp_path))) as opened:
        yield opened


@pytest.fixture
def maintenance(database: Database) -> MaintenanceBackend:
    """Who looks after this dialect."""
    return dialects.of(database.dialect)


@pytest.fixture
def library(raw: RawWriter, monkeypatch: pytest.MonkeyPatch) -> RawWriter:
    """The writer, after it has written memories for several slices."""
    for dialect in (sqlite_rebuilding, postgresql):
        monkeypatch.setattr(dialect, "_SLICE_ROWS", 10)
    for number in range(ROWS):
        raw.insert("memory_items", team_id="a", project_id="a1", text=f"the {corruption.WORD} keeper number {number}")
    return raw


def found(database: Database, word: str) -> int:
    with database.read() as connection:
        hits = full_text.of(database.dialect).find(connection, SearchScope("a", ("a1",)), (((word,),),), limit=10_000)
        return len(hits)


@pytest.mark.parametrize("harm", corruption.ANY)
def test_a_rebuild_mends_every_drift(
    library: RawWriter, database: Database, maintenance: MaintenanceBackend, harm: Callable[[RawWriter], None]
):
    """Whatever happened to full text, a rebuild makes it whole, and every memory is found again."""
    harm(library)

    maintenance.rebuild(database)

    assert (maintenance.faults(database), found(database, corruption.WORD)) == ([], ROWS)


def test_a_second_rebuild_changes_nothing(library: RawWriter, database: Database, maintenance: MaintenanceBackend):
    """Run twice, it leaves the schema as it was and full text whole."""
    maintenance.rebuild(database)
    schema = library.schema()

    assert maintenance.rebuild(database) == ROWS

    assert library.schema() == schema
    assert maintenance.faults(database) == []


def test_what_is_written_meanwhile_is_indexed_too(
    library: RawWriter, database: Database, maintenance: MaintenanceBackend
):
    """What is inserted, updated or deleted between the slices, filled ones or not, is in the new index."""
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
    assert [found(database, word) for word in ("early", "late", "memory", corruption.WORD)] == [1, 1, 1, ROWS - 4]


def test_four_writers_go_on_during_a_rebuild(library: RawWriter, database: Database, maintenance: MaintenanceBackend):
    """Nobody's write fails or is lost while slices are filled."""
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
    assert found(database, "meanwhile") == sum(written) > 0


def test_searches_find_until_the_new_index_takes_its_place(
    library: RawWriter, database: Database, maintenance: MaintenanceBackend
):
    """At every slice the standing index answers."""
    answers: list[int] = []

    maintenance.rebuild(database, lambda _: answers.append(found(database, corruption.WORD)))

    assert answers == [ROWS] * (ROWS // 10)


def test_a_rebuild_that_was_killed_begins_again(
    library: RawWriter, database: Database, maintenance: MaintenanceBackend
):
    """What an interrupted rebuild left behind is cleared by the next."""

    def killed(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        maintenance.rebuild(database, killed)
    library.run("UPDATE memory_items SET text = 'early change' WHERE seq = 2")

    maintenance.rebuild(database)

    assert (maintenance.faults(database), found(database, "early")) == ([], 1)


def test_two_rebuilds_at_once_take_turns(library: RawWriter, database: Database, maintenance: MaintenanceBackend):
    """A second rebuild waits for the first, and neither fails."""
    counts: list[int] = []
    second = threading.Thread(target=lambda: counts.append(maintenance.rebuild(database)))

    counts.append(maintenance.rebuild(database, lambda done: second.start() if done == 10 else None))
    second.join()

    assert (counts, maintenance.faults(database)) == ([ROWS, ROWS], [])
