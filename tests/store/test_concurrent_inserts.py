"""insert(): concurrent where the database allows it, never during an exclusive write, and no row twice."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from sqlalchemy import Connection, text

from app.api.http.thread_pools import retrying
from app.errors import NothingDone
from app.store.database import Database

A_MOMENT_SECONDS = 0.1


def count(connection: Connection) -> int:
    return int(connection.execute(text("SELECT count(*) FROM project_statistics")).scalar_one())


def add(connection: Connection, project_id: str) -> None:
    connection.execute(text("INSERT INTO project_statistics VALUES (:id, 't', 0, 0, 0)"), {"id": project_id})


def test_only_one_of_several_concurrent_inserts_adds_the_same_row(database: Database):
    """The others get NothingDone, try again, and find it."""

    def add_once() -> bool:
        with database.insert() as connection:
            if count(connection):
                return False
            time.sleep(A_MOMENT_SECONDS)
            add(connection, "the same")
            return True

    with ThreadPoolExecutor(4) as pool:
        added = [pool.submit(retrying(add_once, retry_on=(NothingDone,))) for _ in range(4)]

    assert sorted(each.result() for each in added) == [False, False, False, True]


def test_insert_waits_for_exclusive_write(database: Database):
    """What the exclusive write reads at its start is the same at its end."""
    has_read = threading.Event()

    def read_twice() -> tuple[int, int]:
        with database.write() as connection:
            before = count(connection)
            has_read.set()
            time.sleep(A_MOMENT_SECONDS)
            return before, count(connection)

    def insert() -> None:
        has_read.wait(10)
        with database.insert() as connection:
            add(connection, "another")

    with ThreadPoolExecutor(2) as pool:
        reading, inserting = pool.submit(read_twice), pool.submit(insert)

    assert reading.result() == (0, 0)
    assert inserting.result() is None


def test_exclusive_write_waits_for_insert(database: Database):
    """What an insert has read is not changed before it commits."""
    with database.write() as connection:
        add(connection, "existing")
    has_read = threading.Event()

    def read_twice() -> tuple[int, int]:
        with database.insert() as connection:
            before = count(connection)
            has_read.set()
            time.sleep(A_MOMENT_SECONDS)
            return before, count(connection)

    def remove() -> None:
        has_read.wait(10)
        with database.write() as connection:
            connection.execute(text("DELETE FROM project_statistics"))

    with ThreadPoolExecutor(2) as pool:
        reading, removing = pool.submit(read_twice), pool.submit(remove)

    assert reading.result() == (1, 1)
    assert removing.result() is None


def test_inserts_with_the_same_lock_name_take_turns(database: Database):
    """Each sees what the ones before it have added."""

    def add_next(_: int) -> None:
        with database.insert("a session", "a request") as connection:
            so_far = count(connection)
            time.sleep(A_MOMENT_SECONDS / 10)
            add(connection, f"number {so_far}")

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(add_next, range(12)))

    with database.read() as connection:
        assert count(connection) == 12


@pytest.mark.postgresql
def test_inserts_with_different_lock_names_run_concurrently(database: Database):
    """Both are open at the same time."""
    both_add = threading.Barrier(2)

    def insert(name: str) -> None:
        with database.insert(name) as connection:
            add(connection, name)
            both_add.wait(timeout=10)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(insert, ["a session", "another session"])) == [None, None]


def test_failed_insert_is_rolled_back(database: Database):
    """Like every other write."""

    def fail() -> None:
        with database.insert() as connection:
            add(connection, "a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with database.read() as connection:
        assert count(connection) == 0
