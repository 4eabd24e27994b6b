"""Readiness on SQLite: each cause of an outage is named."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from app.services.operations.readiness import Readiness
from tests.databases import Databases
from tests.services import disk_faults, library
from tests.services.library import Library

pytestmark = pytest.mark.sqlite


@pytest.fixture
def books(databases: Databases, tmp_path: Path) -> Iterator[Library]:
    with library.opened(databases, tmp_path) as opened:
        opened.remember_all([{"narrative": f"{number} a memory to damage " * 20} for number in range(200)])
        yield opened


def test_page_check_finds_damage_that_no_request_has_hit(books: Library):
    """Every page is read in the background."""
    disk_faults.overwrite_page_of_memories(books.database.path)
    readiness = Readiness(books.database)
    readiness.check_pages()

    assert readiness.of_database() == ("integrity check failed: it is corrupt", "ok")


def test_page_check_is_not_repeated_immediately(books: Library):
    """It pauses for a hundred times its own duration."""
    readiness = Readiness(books.database)
    readiness.check_pages()
    disk_faults.overwrite_page_of_memories(books.database.path)
    readiness.check_pages()

    assert readiness.pages == "ok"


def test_full_disk_is_named(books: Library):
    """SQLite's own page limit simulates it."""
    readiness = Readiness(books.database)
    with books.database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE filler (content)")
        connection.exec_driver_sql(
            "CREATE TRIGGER fill AFTER UPDATE ON alembic_version BEGIN"
            " INSERT INTO filler VALUES (randomblob(1000000)); END"
        )
        connection.exec_driver_sql("PRAGMA max_page_count = 200")
    readiness.try_writing()

    assert readiness.of_database()[0] == "not writable: the disk is full"


def test_read_only_database_is_named(books: Library):
    """As after a read-only remount."""
    with books.database.write() as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")
    readiness = Readiness(books.database)
    readiness.try_writing()

    assert readiness.of_database()[0] == "not writable: it is read-only"
