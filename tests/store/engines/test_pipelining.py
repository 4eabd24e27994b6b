"""Statements that nobody waits for: they come in order, all or none, and their failures are not lost."""

from contextlib import suppress

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from app.store.database import Database
from app.store.engines import pipelining
from app.store.models import project_statistics
from app.store.prepared import inserting

pytestmark = pytest.mark.postgresql

INSERT = inserting(project_statistics)
COUNT = text("SELECT count(*) FROM project_statistics")


def row(project_id: str) -> dict[str, object]:
    return {"project_id": project_id, "team_id": "t", "memories": 0, "characters": 0, "changes": 0}


def stored(database: Database) -> int:
    with database.read() as connection:
        return int(connection.execute(COUNT).scalar_one())


def test_what_waits_comes_before_any_other_statement(database: Database):
    """SQLAlchemy's own ones too."""
    with database.write() as connection:
        INSERT.run(connection, row("a"))
        assert connection.execute(COUNT).scalar_one() == 1
        INSERT.run(connection, row("b"))
    assert stored(database) == 2


def test_more_than_may_wait_is_stored_all_the_same(database: Database):
    """It is sent in parts."""
    rows = 2 * pipelining._MOST_WAITING + 7
    with database.write() as connection:
        for number in range(rows):
            INSERT.run(connection, row(str(number)))
    assert stored(database) == rows


def test_a_failure_comes_with_the_commit(database: Database):
    """It is the one of the statement that failed, not of those left out for it; nothing is stored."""

    def write() -> None:
        with database.write() as connection:
            for project_id in ("a", "a", "b"):
                INSERT.run(connection, row(project_id))

    with pytest.raises(IntegrityError, match="duplicate key"):
        write()
    assert stored(database) == 0


def test_a_failure_comes_with_the_next_statement(database: Database):
    """Whoever asks something is not answered as if all was well."""

    def write() -> None:
        with database.write() as connection:
            for project_id in ("a", "a", "b"):
                INSERT.run(connection, row(project_id))
            connection.execute(COUNT)
            pytest.fail("the failure was passed over")

    with pytest.raises(IntegrityError, match="duplicate key"):
        write()


def test_a_failure_that_somebody_catches_is_not_committed_in_silence(database: Database):
    """PostgreSQL undoes everything and says ROLLBACK to a COMMIT; nobody must take that for an acknowledgement."""

    def write() -> None:
        with database.write() as connection:
            INSERT.run(connection, row("a"))
            with suppress(IntegrityError):
                connection.execute(text("INSERT INTO project_statistics VALUES ('a', 't', 0, 0, 0)"))

    with pytest.raises(RuntimeError, match="undone"):
        write()
    assert stored(database) == 0


def test_what_waits_when_something_else_fails_is_not_sent_to_the_next_one(database: Database):
    """The connection goes back without it."""

    def fail() -> None:
        with database.write() as connection:
            INSERT.run(connection, row("a"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with database.write() as connection:
        INSERT.run(connection, row("b"))
    assert stored(database) == 1


def test_without_a_statement_nothing_is_begun(database: Database):
    """Not even the transaction: there is nothing to undo either."""
    with database.write() as connection:
        assert connection.connection.driver_connection.info.transaction_status.name == "IDLE"
