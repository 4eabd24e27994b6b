"""Transactions: reads never wait, writers take turns, what fails is undone, and outages have a name."""

import sqlite3
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest
from sqlalchemy import Connection, text

from app.errors import Unavailable
from app.store.database import Database
from app.store.engines import postgresql, sqlite
from app.store.engines.locks import FairLock

COUNT = "SELECT memories FROM project_statistics WHERE project_id = 'p'"


@pytest.fixture
def counter(database: Database) -> Database:
    """A database with one number in it."""
    with database.write() as connection:
        connection.exec_driver_sql("INSERT INTO project_statistics VALUES ('p', 't', 0, 0, 0)")
    return database


def number(database: Database) -> int:
    with database.read() as connection:
        return int(connection.exec_driver_sql(COUNT).scalar_one())


def raise_number(database: Database) -> None:
    """Read, then write what was read: the way that loses updates, or the lock, when a transaction begins too late."""
    with database.write() as connection:
        now = connection.exec_driver_sql(COUNT).scalar_one()
        connection.execute(text("UPDATE project_statistics SET memories = :next"), {"next": now + 1})


def test_two_hundred_writers_at_once_all_succeed(counter: Database):
    """Reading and then writing under load loses no update and raises nothing."""
    with ThreadPoolExecutor(100) as pool:
        for done in [pool.submit(raise_number, counter) for _ in range(200)]:
            done.result()

    assert number(counter) == 200


def test_writers_of_several_databases_objects_take_turns_too(counter: Database):
    """Two openings of one file, as two processes have them, lose nothing."""
    with closing(Database(counter.url)) as other, ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(raise_number, each) for _ in range(50) for each in (counter, other)]:
            done.result()

    assert number(counter) == 100


def test_reads_go_on_while_somebody_holds_the_write_lock(counter: Database):
    """A reader neither waits for a writer nor sees what is not committed."""
    with counter.write() as connection:
        connection.exec_driver_sql("UPDATE project_statistics SET memories = 7")

        assert [number(counter) for _ in range(20)] == [0] * 20

    assert number(counter) == 7


def test_a_read_sees_one_snapshot(counter: Database):
    """What is committed meanwhile does not show inside a read that has begun."""
    with counter.read() as connection:
        before = connection.exec_driver_sql(COUNT).scalar_one()
        raise_number(counter)

        assert connection.exec_driver_sql(COUNT).scalar_one() == before


def test_what_was_written_is_seen_by_the_next_read_of_any_thread(counter: Database):
    """A commit is visible at once, on every connection."""
    with ThreadPoolExecutor(4) as pool:
        for expected in range(1, 101):
            raise_number(counter)
            assert pool.submit(number, counter).result() == expected


def test_an_exception_undoes_the_whole_write(counter: Database):
    """Nothing of a transaction that failed stays, and the next one works."""

    class Refused(Exception):
        pass

    def fail() -> None:
        with counter.write() as connection:
            connection.exec_driver_sql("UPDATE project_statistics SET memories = 7")
            raise Refused

    with pytest.raises(Refused):
        fail()
    raise_number(counter)

    assert number(counter) == 1


def test_a_read_cannot_write(counter: Database):
    """Whoever asked for a read is refused a write."""
    with pytest.raises(Unavailable), counter.read() as connection:
        connection.exec_driver_sql("UPDATE project_statistics SET memories = 7")


def test_turns_come_in_the_order_of_asking():
    """The fair lock serves first who came first, also when the holder asks again at once."""
    lock, served = FairLock(), []
    waiting = [threading.Event() for _ in range(5)]

    def take(place: int) -> None:
        waiting[place].set()
        with lock.turn(10):
            served.append(place)

    threads = [threading.Thread(target=take, args=(place,)) for place in range(5)]
    with lock.turn(10):
        for place, thread in enumerate(threads):
            thread.start()
            waiting[place].wait()
            while len(lock._waiting) <= place:
                time.sleep(0.001)
    with lock.turn(10):
        served.append("again")
    for thread in threads:
        thread.join()

    assert served == [0, 1, 2, 3, 4, "again"]


def test_a_turn_that_does_not_come_is_unavailable_and_blocks_nobody():
    """Whoever gives up waiting leaves the queue."""
    lock = FairLock()
    with lock.turn(1), pytest.raises(Unavailable), lock.turn(0.01):
        pass

    with lock.turn(0.01):
        assert lock._held


@pytest.mark.sqlite
def test_maintenance_keeps_the_writers_of_this_process_out_too(counter: Database):
    """While exclusive() is held no write begins, and it does afterwards."""
    with ThreadPoolExecutor(1) as pool:
        with counter.exclusive():
            waiting = pool.submit(raise_number, counter)
            while not counter._engines._turns._waiting:
                time.sleep(0.001)
            assert number(counter) == 0
        waiting.result()

    assert number(counter) == 1


def test_a_reader_that_finds_no_connection_is_told_so(counter: Database, monkeypatch: pytest.MonkeyPatch):
    """More readers than connections wait, and are Unavailable in the end: a full pool is no bug."""
    for dialect in (sqlite, postgresql):
        monkeypatch.setattr(dialect, "TURN_TIMEOUT_SECONDS", 0.01)
    with closing(Database(counter.url, readers=1)) as narrow, narrow.read(), pytest.raises(Unavailable), narrow.read():
        pass


def overwritten(path: Path) -> None:
    """Somebody wrote something else over the file."""
    path.write_bytes(b"this is no database" * 1000)


def damaged_pages(path: Path) -> None:
    """All pages behind the first are noise."""
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


def a_folder(path: Path) -> None:
    """There is no file to open."""
    path.unlink()
    path.mkdir()


@pytest.mark.sqlite
@pytest.mark.parametrize("harm", [overwritten, damaged_pages, a_folder])
def test_a_database_that_cannot_be_read_is_unavailable(database: Database, harm: Callable[[Path], None]):
    """Damage of the file is an outage with a name, not a bug in a statement."""
    database.close()
    harm(database.path)

    with pytest.raises(Unavailable), database.read() as connection:
        connection.exec_driver_sql("SELECT * FROM memory_items").fetchall()
    with pytest.raises(Unavailable), database.write() as connection:
        connection.exec_driver_sql("INSERT INTO project_statistics VALUES ('p', 't', 0, 0, 0)")


@pytest.mark.sqlite
def test_a_full_disk_is_unavailable_and_changes_nothing(counter: Database):
    """A write that finds no room is refused whole; reading goes on."""

    def fill(connection: Connection) -> None:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        connection.exec_driver_sql("UPDATE project_statistics SET memories = 7")
        connection.exec_driver_sql("INSERT INTO teams VALUES ('t', ?, 't', '{}', 1, 1)", ("x" * 100_000,))

    with pytest.raises(Unavailable), counter.write() as connection:
        fill(connection)

    assert number(counter) == 0


@pytest.mark.sqlite
def test_a_folder_that_takes_no_lock_file_is_unavailable(counter: Database):
    """Where no lock file can be made nothing can be written, and that is an outage."""
    counter.close()
    lock = counter.path.with_name(counter.path.name + "-writer.lock")
    lock.unlink()
    lock.mkdir()

    with pytest.raises(Unavailable):
        raise_number(counter)


@pytest.mark.sqlite
def test_a_lock_that_another_program_keeps_is_unavailable(counter: Database, monkeypatch: pytest.MonkeyPatch):
    """Whoever holds the file longer than a writer may wait makes an outage, and "database is locked" reaches nobody."""
    monkeypatch.setattr(sqlite, "_BUSY_TIMEOUT_MS", 10)
    with (
        closing(Database(counter.url)) as patient,
        closing(sqlite3.connect(counter.path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable):
            raise_number(patient)
        other.execute("ROLLBACK")
        raise_number(patient)

    assert number(counter) == 1


def test_a_mistake_in_a_statement_is_no_outage(database: Database):
    """A bug of ours is not called an outage: it must be seen."""
    with pytest.raises(Exception, match=r"no such table|does not exist") as failure, database.read() as connection:
        connection.exec_driver_sql("SELECT * FROM no_such_table")

    assert not isinstance(failure.value, Unavailable)


@pytest.mark.sqlite
def test_every_connection_keeps_what_was_acknowledged(database: Database):
    """Commits reach the disk (synchronous=FULL), foreign keys hold, the log is written ahead."""
    with database.write() as connection:
        settings = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("synchronous", "foreign_keys", "journal_mode")
        ]

    assert settings == [2, 1, "wal"]


@pytest.mark.sqlite
def test_a_plain_reader_can_open_the_file_meanwhile(counter: Database):
    """Other programs read the file while a write is going on."""
    with counter.write(), closing(sqlite3.connect(counter.path, timeout=0)) as plain:
        assert plain.execute(COUNT).fetchone() == (0,)
