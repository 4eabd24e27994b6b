"""Adding rows: several at once where the database can, never beside a turn, and no equal row twice."""

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


def test_of_many_that_find_no_equal_row_and_add_it_one_does(database: Database):
    """The others have done nothing, try again, and find it."""

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


def test_nothing_is_added_while_somebody_has_his_turn(database: Database):
    """What he saw at the beginning is what he sees at the end."""
    has_looked = threading.Event()

    def look_twice() -> tuple[int, int]:
        with database.write() as connection:
            before = count(connection)
            has_looked.set()
            time.sleep(A_MOMENT_SECONDS)
            return before, count(connection)

    def append() -> None:
        has_looked.wait(10)
        with database.insert() as connection:
            add(connection, "another")

    with ThreadPoolExecutor(2) as pool:
        looking, appending = pool.submit(look_twice), pool.submit(append)

    assert looking.result() == (0, 0)
    assert appending.result() is None


def test_nobody_has_his_turn_while_somebody_adds(database: Database):
    """What he looked at before he adds is not changed meanwhile."""
    with database.write() as connection:
        add(connection, "standing")
    has_looked = threading.Event()

    def look_twice() -> tuple[int, int]:
        with database.insert() as connection:
            before = count(connection)
            has_looked.set()
            time.sleep(A_MOMENT_SECONDS)
            return before, count(connection)

    def remove() -> None:
        has_looked.wait(10)
        with database.write() as connection:
            connection.execute(text("DELETE FROM project_statistics"))

    with ThreadPoolExecutor(2) as pool:
        looking, removing = pool.submit(look_twice), pool.submit(remove)

    assert looking.result() == (1, 1)
    assert removing.result() is None


def test_those_that_add_to_the_same_thing_take_turns(database: Database):
    """Each counts what the ones before it have added."""

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
def test_those_that_add_to_different_things_do_not_wait_for_each_other(database: Database):
    """Both are at it at the same time."""
    both_add = threading.Barrier(2)

    def append(name: str) -> None:
        with database.insert(name) as connection:
            add(connection, name)
            both_add.wait(timeout=10)

    with ThreadPoolExecutor(2) as pool:
        assert list(pool.map(append, ["a session", "another session"])) == [None, None]


def test_what_was_added_before_a_failure_is_undone(database: Database):
    """As with every other write."""

    def fail() -> None:
        with database.insert() as connection:
            add(connection, "a")
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with database.read() as connection:
        assert count(connection) == 0
