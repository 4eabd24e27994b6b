"""Transactions: reads never wait, writers take turns, failures roll back, and outages are Unavailable."""

import sqlite3
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

COUNT = "SELECT memories FROM project_statistics WHERE project_id = 'p'"


@pytest.fixture
def counter(database: Database) -> Database:
    """A database with one number, initially 0."""
    with database.write() as connection:
        connection.exec_driver_sql("INSERT INTO project_statistics VALUES ('p', 't', 0, 0, 0)")
    return database


def number(database: Database) -> int:
    with database.read() as connection:
        return int(connection.exec_driver_sql(COUNT).scalar_one())


def increment(database: Database) -> None:
    """Read the number and write it back plus one, which loses updates if the transaction begins too late."""
    with database.write() as connection:
        now = connection.exec_driver_sql(COUNT).scalar_one()
        connection.execute(text("UPDATE project_statistics SET memories = :next"), {"next": now + 1})


def test_two_hundred_writers_at_once_all_succeed(counter: Database):
    """Read-modify-write under load loses no update and raises no error."""
    with ThreadPoolExecutor(100) as pool:
        for done in [pool.submit(increment, counter) for _ in range(200)]:
            done.result()

    assert number(counter) == 200


def test_writers_of_several_database_objects_take_turns(counter: Database):
    """Opening one database twice, as two processes do, loses no update."""
    with closing(Database(counter.url)) as other, ThreadPoolExecutor(8) as pool:
        for done in [pool.submit(increment, each) for _ in range(50) for each in (counter, other)]:
            done.result()

    assert number(counter) == 100


def test_reads_do_not_wait_for_a_writer(counter: Database):
    """And they do not see what is not committed."""
    with counter.write() as connection:
        connection.exec_driver_sql("UPDATE project_statistics SET memories = 7")

        assert [number(counter) for _ in range(20)] == [0] * 20

    assert number(counter) == 7


def test_read_sees_one_snapshot(counter: Database):
    """It does not see what is committed after it began."""
    with counter.read() as connection:
        before = connection.exec_driver_sql(COUNT).scalar_one()
        increment(counter)

        assert connection.exec_driver_sql(COUNT).scalar_one() == before


def test_committed_write_is_visible_to_all_threads_at_once(counter: Database):
    """On every connection."""
    with ThreadPoolExecutor(4) as pool:
        for expected in range(1, 101):
            increment(counter)
            assert pool.submit(number, counter).result() == expected


def test_exception_rolls_back_the_whole_write(counter: Database):
    """And the next write works."""

    class Failed(Exception):
        pass

    def fail() -> None:
        with counter.write() as connection:
            connection.exec_driver_sql("UPDATE project_statistics SET memories = 7")
            raise Failed

    with pytest.raises(Failed):
        fail()
    increment(counter)

    assert number(counter) == 1


def test_read_cannot_write(counter: Database):
    """A write inside read() is Unavailable."""
    with pytest.raises(Unavailable), counter.read() as connection:
        connection.exec_driver_sql("UPDATE project_statistics SET memories = 7")


@pytest.mark.sqlite
def test_exclusive_blocks_writers_of_this_process(counter: Database):
    """No write begins while exclusive() is held; it does afterwards."""
    with ThreadPoolExecutor(1) as pool:
        with counter.exclusive():
            waiting = pool.submit(increment, counter)
            while not counter._engines._turns._waiting:
                time.sleep(0.001)
            assert number(counter) == 0
        waiting.result()

    assert number(counter) == 1


def test_exhausted_pool_is_unavailable(counter: Database, monkeypatch: pytest.MonkeyPatch):
    """Readers wait for a connection and then give up: a full pool is not a bug."""
    for dialect in (sqlite, postgresql):
        monkeypatch.setattr(dialect, "TURN_TIMEOUT_SECONDS", 0.01)
    with closing(Database(counter.url, readers=1)) as narrow, narrow.read(), pytest.raises(Unavailable), narrow.read():
        pass


def overwritten(path: Path) -> None:
    """The file has been overwritten."""
    path.write_bytes(b"this is no database" * 1000)


def damaged_pages(path: Path) -> None:
    """All pages after the first are noise."""
    content = path.read_bytes()
    path.write_bytes(content[:4096] + b"\xff" * (len(content) - 4096))


def a_folder(path: Path) -> None:
    """There is a folder instead of the file."""
    path.unlink()
    path.mkdir()


@pytest.mark.sqlite
@pytest.mark.parametrize("damage", [overwritten, damaged_pages, a_folder])
def test_unreadable_database_is_unavailable(database: Database, damage: Callable[[Path], None]):
    """Damage to the file is an outage, not a bug in a statement."""
    database.close()
    damage(database.path)

    with pytest.raises(Unavailable), database.read() as connection:
        connection.exec_driver_sql("SELECT * FROM memory_items").fetchall()
    with pytest.raises(Unavailable), database.write() as connection:
        connection.exec_driver_sql("INSERT INTO project_statistics VALUES ('p', 't', 0, 0, 0)")


@pytest.mark.sqlite
def test_full_disk_is_unavailable_and_changes_nothing(counter: Database):
    """The write fails as a whole; reads go on."""

    def fill(connection: Connection) -> None:
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        connection.exec_driver_sql(f"PRAGMA max_page_count = {pages}")
        connection.exec_driver_sql("UPDATE project_statistics SET memories = 7")
        connection.exec_driver_sql("INSERT INTO teams VALUES ('t', ?, 't', '{}', 1, 1)", ("x" * 100_000,))

    with pytest.raises(Unavailable), counter.write() as connection:
        fill(connection)

    assert number(counter) == 0


@pytest.mark.sqlite
def test_missing_lock_file_is_unavailable(counter: Database):
    """If the lock file cannot be opened, nothing can be written, which is an outage."""
    counter.close()
    lock = counter.path.with_name(counter.path.name + "-writer.lock")
    lock.unlink()
    lock.mkdir()

    with pytest.raises(Unavailable):
        increment(counter)


@pytest.mark.sqlite
def test_lock_held_by_another_program_is_unavailable(counter: Database, monkeypatch: pytest.MonkeyPatch):
    """After the busy timeout; SQLite's "database is locked" is not passed on."""
    monkeypatch.setattr(sqlite, "_BUSY_TIMEOUT_MS", 10)
    with (
        closing(Database(counter.url)) as impatient,
        closing(sqlite3.connect(counter.path, isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(Unavailable):
            increment(impatient)
        other.execute("ROLLBACK")
        increment(impatient)

    assert number(counter) == 1


def test_invalid_statement_is_not_an_outage(database: Database):
    """A bug must not be hidden as an outage."""
    with pytest.raises(Exception, match=r"no such table|does not exist") as failure, database.read() as connection:
        connection.exec_driver_sql("SELECT * FROM no_such_table")

    assert not isinstance(failure.value, Unavailable)


@pytest.mark.sqlite
def test_connections_have_durable_settings(database: Database):
    """synchronous=FULL, foreign keys are enforced, and the log is write-ahead."""
    with database.write() as connection:
        settings = [
            connection.exec_driver_sql(f"PRAGMA {name}").scalar_one()
            for name in ("synchronous", "foreign_keys", "journal_mode")
        ]

    assert settings == [2, 1, "wal"]


@pytest.mark.sqlite
def test_other_program_can_read_during_a_write(counter: Database):
    """With the plain driver, without waiting."""
    with counter.write(), closing(sqlite3.connect(counter.path, timeout=0)) as plain:
        assert plain.execute(COUNT).fetchone() == (0,)
