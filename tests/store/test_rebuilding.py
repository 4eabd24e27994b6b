"""Full text is rebuilt while the server goes on, and is whole afterwards whatever happened to it."""

import threading
from collections.abc import Callable

import pytest

from app.store.database import Database
from app.store.fulltext import care, rebuilding
from tests.store import damage
from tests.store.raw_writer import RawWriter

ROWS = 60


@pytest.fixture
def library(raw: RawWriter, monkeypatch: pytest.MonkeyPatch) -> RawWriter:
    """The writer, after it has written memories for several slices."""
    monkeypatch.setattr(rebuilding, "_SLICE_ROWS", 10)
    for number in range(ROWS):
        raw.insert("memory_items", team_id="a", project_id="a1", text=f"the {damage.WORD} keeper number {number}")
    return raw


def found(raw: RawWriter, word: str) -> int:
    return int(raw.run("SELECT count(*) FROM memory_items_fts WHERE memory_items_fts MATCH ?", word)[0][0])


@pytest.mark.parametrize("harm", damage.ANY)
def test_a_rebuild_mends_every_drift(library: RawWriter, database: Database, harm: Callable[[RawWriter], None]):
    """Whatever happened to full text, a rebuild makes it whole, and every memory is found again."""
    harm(library)

    rebuilding.rebuild(database)

    assert (care.faults(database), found(library, damage.WORD)) == ([], ROWS)


def test_a_second_rebuild_changes_nothing(library: RawWriter, database: Database):
    """Run twice, it leaves the schema as it was and full text whole."""
    rebuilding.rebuild(database)
    schema = library.run("SELECT type, name, sql FROM sqlite_master ORDER BY name")

    assert rebuilding.rebuild(database) == ROWS

    assert library.run("SELECT type, name, sql FROM sqlite_master ORDER BY name") == schema
    assert care.faults(database) == []


def test_what_is_written_meanwhile_is_indexed_too(library: RawWriter, database: Database):
    """What is inserted, updated or deleted between the slices, filled ones or not, is in the new index."""
    writes = iter(
        [
            lambda: library.run("UPDATE memory_items SET text = 'early change' WHERE seq = 2"),
            lambda: library.run("UPDATE memory_items SET text = 'late change' WHERE seq = 55"),
            lambda: library.run("DELETE FROM memory_items WHERE seq IN (3, 54)"),
            lambda: library.insert("memory_items", team_id="a", project_id="a1", text="new memory"),
        ]
    )

    rebuilding.rebuild(database, lambda _: next(writes, lambda: None)())

    assert next(writes, None) is None
    assert care.faults(database) == []
    assert [found(library, word) for word in ("early", "late", "memory", damage.WORD)] == [1, 1, 1, ROWS - 4]


def test_four_writers_go_on_during_a_rebuild(library: RawWriter, database: Database):
    """Nobody's write fails or is lost while slices are filled."""
    done = threading.Event()
    written: list[int] = []

    def write(writer: int) -> None:
        number = 0
        while not done.is_set() and number < 200:
            with database.write() as connection:
                connection.exec_driver_sql(
                    "INSERT INTO memory_items(id, team_id, project_id, dedup_scope, version, kind, type, text, facts,"
                    " concepts, files_read, files_modified, metadata, platform_source, content_hash, created_at_epoch,"
                    " updated_at_epoch) VALUES (?, 'a', 'a1', '', 1, 'manual', 'manual', 'meanwhile', '[]', '[]',"
                    " '[]', '[]', '{}', 'claude', ?, 1, 1)",
                    (f"{writer}-{number}", f"{writer}-{number}"),
                )
            number += 1
        written.append(number)

    threads = [threading.Thread(target=write, args=(writer,)) for writer in range(4)]
    for thread in threads:
        thread.start()
    rebuilding.rebuild(database)
    done.set()
    for thread in threads:
        thread.join()

    assert (len(written), care.faults(database)) == (4, [])
    assert found(library, "meanwhile") == sum(written) > 0


def test_searches_find_until_the_new_index_takes_its_place(library: RawWriter, database: Database):
    """At every slice the standing index answers."""
    answers: list[int] = []

    rebuilding.rebuild(database, lambda _: answers.append(found(library, damage.WORD)))

    assert answers == [ROWS] * (ROWS // 10)


def test_a_rebuild_that_was_killed_begins_again(library: RawWriter, database: Database):
    """What an interrupted rebuild left behind is cleared by the next."""

    def killed(_: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        rebuilding.rebuild(database, killed)
    library.run("UPDATE memory_items SET text = 'early change' WHERE seq = 2")

    rebuilding.rebuild(database)

    assert (care.faults(database), found(library, "early")) == ([], 1)


def test_two_rebuilds_at_once_take_turns(library: RawWriter, database: Database):
    """A second rebuild waits for the first, and neither fails."""
    counts: list[int] = []
    second = threading.Thread(target=lambda: counts.append(rebuilding.rebuild(database)))

    counts.append(rebuilding.rebuild(database, lambda done: second.start() if done == 10 else None))
    second.join()

    assert (counts, care.faults(database)) == ([ROWS, ROWS], [])
