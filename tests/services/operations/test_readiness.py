"""Why a server on SQLite is not ready has a name."""

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from app.services.operations.readiness import Readiness
from tests.postgresql import SERVER
from tests.services import damage, library
from tests.services.library import Library
from tests.store import raw_writer
from tests.stores import Stores

pytestmark = pytest.mark.sqlite


@pytest.fixture
def books(stores: Stores, tmp_path: Path) -> Iterator[Library]:
    with library.opened(stores, tmp_path) as opened:
        opened.remember_all([{"narrative": f"{number} a memory to damage " * 20} for number in range(200)])
        yield opened


@pytest.mark.sqlite
def test_damage_that_no_request_has_met_shows(books: Library):
    """Every page is read in the background."""
    damage.a_page_of_memories(books.database.path)
    readiness = Readiness(books.database)
    readiness.look_at_pages()

    assert readiness.of_database() == ("not whole: it is corrupt", "ok")


@pytest.mark.sqlite
def test_whole_pages_are_not_read_again_at_once(books: Library):
    """The look rests a hundred times as long as it took."""
    readiness = Readiness(books.database)
    readiness.look_at_pages()
    damage.a_page_of_memories(books.database.path)
    readiness.look_at_pages()

    assert readiness.pages == "ok"


@pytest.mark.sqlite
def test_a_full_disk_has_a_name(books: Library):
    """SQLite's own limit on pages stands for the disk."""
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


@pytest.mark.sqlite
def test_a_read_only_database_has_a_name(books: Library):
    """As after a remount."""
    with books.database.write() as connection:
        connection.exec_driver_sql("PRAGMA query_only = ON")
    readiness = Readiness(books.database)
    readiness.try_writing()

    assert readiness.of_database()[0] == "not writable: it is read-only"


@pytest.mark.postgresql
def test_a_role_without_its_rights_has_a_name(books: Library, stores: Stores, tmp_path: Path):
    """As after a restore that nobody granted anything in."""
    with closing(raw_writer.opened(stores.owner_url(tmp_path))) as owner:
        owner.run(f"REVOKE UPDATE ON alembic_version FROM {SERVER}")
    readiness = Readiness(books.database)
    readiness.try_writing()

    assert readiness.of_database()[0] == "not writable: the server's role may not use it"
