"""Full text is rebuilt while the server goes on, and is whole afterwards whatever happened to it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import text

from app.store.database import Database
from app.store.fulltext import Scope
from app.store.fulltext import dialects as full_text
from app.store.maintenance import Care, dialects, postgresql, sqlite_rebuilding
from tests.store import damage
from tests.store.raw_writer import RawWriter
from tests.stores import Stores, of_folder

ROWS = 60
WRITE_ONE = text("""
    INSERT INTO memory_items(id, team_id, project_id, dedup_scope, version, kind, type, text, facts, concepts,
      files_read, files_modified, metadata, platform_source, content_hash, created_at_epoch, updated_at_epoch)
    VALUES (:id, 'a', 'a1', '', 1, 'manual', 'manual', 'meanwhile', '[]', '[]', '[]', '[]', '{}', 'claude', :id, 1, 1)
""")


@pytest.fixture
def database(stores: Stores, tmp_path: Path) -> Iterator[Database]:
    """The database as who owns its tables has it: what was altered, only he can mend."""
    with of_folder(stores, tmp_path), closing(Database(stores.owner_url(tmp_path))) as opened:
        yield opened


@pytest.fixture
def care(database: Database) -> Care:
    """Who looks after this dialect."""
    return dialects.of(database.dialect)


@pytest.fixture
def library(raw: RawWriter, monkeypatch: pytest.MonkeyPatch) -> RawWriter:
    """The writer, after it has written memories for several slices."""
    for dialect in (sqlite_rebuilding, postgresql):
        monkeypatch.setattr(dialect, "_SLICE_ROWS", 10)
    for number in range(ROWS):
        raw.insert("memory_items", team_id="a", project_id="a1", text=f"the {damage.WORD} keeper number {number}")
    return raw


def found(database: Database, word: str) -> int:
    with database.read() as connection:
        hits = full_text.of(database.dialect).find(connection, Scope("a", ("a1",)), (((word,),),), limit=10_000)
        return len(hits)


@pytest.mark.parametrize("harm", damage.ANY)
def test_a_rebuild_mends_every_drift(
    library: RawWriter, database: Database, care: Care, harm: Callable[[RawWriter], None]
):
    """Whatever happened to full text, a rebuild makes it whole, and every memory is found again."""
    harm(library)

    care.rebuild(database)

    assert (care.faults(database), found(database, damage.WORD)) == ([], ROWS)


def test_a_second_rebuild_changes_nothing(library: RawWriter, database: Database, care: Care):
    """Run twice, it leaves the schema as it was and full text whole."""
    care.rebuild(database)
    schema = library.schema()

    assert care.rebuild(database) == ROWS

    assert library.schema() == schema
    assert care.faults(database) == []


def test_what_is_written_meanwhile_is_indexed_too(library: RawWriter, database: Database, care: Care):
    """What is inserted, updated or deleted between the slices, filled ones or not, is in the new index."""
    writes = iter(
        [
            lambda: library.run("UPDATE memory_items SET text = 'early change' WHERE seq = 2"),
            lambda: library.run("UPDATE memory_items SET text = 'late change' WHERE seq = 55"),
            lambda: library.run("DELETE FROM memory_items WHERE seq IN (3, 54)"),
            lambda: library.insert("memory_items", team_id="a", project_id="a1", text="new memory"),
        ]
    )

    care.rebuild(database, lambda _: next(writes, lambda: None)())

    assert next(writes, None) is None
    assert care.faults(database) == []
    assert [found(database, word) for word in ("early", "late", "memory", damage.WORD)] == [1, 1, 1, ROWS - 4]


def test_four_writers_go_on_during_a_rebuild(library: RawWriter, database: Database, care: Care):
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
    care.rebuild(database)
    done.set()
    for thread in threads:
        thread.join()

    assert (len(written), care.faults(database)) == (4, [])
    assert found(database, "meanwhile") == sum(written) > 0


def test_searches_find_until_the_new_index_takes_its_place(library: RawWriter, database: Database, care: Care):
    """At every slice the standing index answers."""
    answers: list[int] = []

    care.rebuild(database, lambda _: answers.append(found(database, damage.WORD)))

    assert answers == [ROWS] * (ROWS // 10)


def test_a_rebuild_that_was_killed_begins_again(library: RawWriter, database: Database, care: Care):
    """What an interrupted rebuild left behind is cleared by the next."""

    def killed(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        care.rebuild(database, killed)
    library.run("UPDATE memory_items SET text = 'early change' WHERE seq = 2")

    care.rebuild(database)

    assert (care.faults(database), found(database, "early")) == ([], 1)


def test_two_rebuilds_at_once_take_turns(library: RawWriter, database: Database, care: Care):
    """A second rebuild waits for the first, and neither fails."""
    counts: list[int] = []
    second = threading.Thread(target=lambda: counts.append(care.rebuild(database)))

    counts.append(care.rebuild(database, lambda done: second.start() if done == 10 else None))
    second.join()

    assert (counts, care.faults(database)) == ([ROWS, ROWS], [])
