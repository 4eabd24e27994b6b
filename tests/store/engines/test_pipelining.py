"""Queued statements run in order, all or none, and their errors are not lost."""

from contextlib import suppress

import pytest
from sqlalchemy import text
from sqlalchemy.exc import IntegrityError

from app.store.database import Database
from app.store.engines import pipelining
from app.store.models import project_statistics
from app.store.prepared import prepare_insert

pytestmark = pytest.mark.postgresql

INSERT = prepare_insert(project_statistics)
COUNT = text("SELECT count(*) FROM project_statistics")


def row(project_id: str) -> dict[str, object]:
    return {"project_id": project_id, "team_id": "t", "memories": 0, "characters": 0, "changes": 0}


def stored(database: Database) -> int:
    with database.read() as connection:
        return int(connection.execute(COUNT).scalar_one())


def test_queued_statements_run_before_any_other(database: Database):
    """Also before those that SQLAlchemy executes."""
    with database.write() as connection:
        INSERT.run(connection, row("a"))
        assert connection.execute(COUNT).scalar_one() == 1
        INSERT.run(connection, row("b"))
    assert stored(database) == 2


def test_full_queue_is_sent_in_parts(database: Database):
    """Every row is stored."""
    rows = 2 * pipelining._MAX_QUEUED + 7
    with database.write() as connection:
        for number in range(rows):
            INSERT.run(connection, row(str(number)))
    assert stored(database) == rows


def test_commit_raises_the_error_of_a_queued_statement(database: Database):
    """It is the error of the statement that failed, not of those skipped after it; nothing is stored."""

    def write() -> None:
        with database.write() as connection:
            for project_id in ("a", "a", "b"):
                INSERT.run(connection, row(project_id))

    with pytest.raises(IntegrityError, match="duplicate key"):
        write()
    assert stored(database) == 0


def test_next_statement_raises_the_error_of_a_queued_one(database: Database):
    """A query is not answered as if nothing had failed."""

    def write() -> None:
        with database.write() as connection:
            for project_id in ("a", "a", "b"):
                INSERT.run(connection, row(project_id))
            connection.execute(COUNT)
            pytest.fail("the error was not raised")

    with pytest.raises(IntegrityError, match="duplicate key"):
        write()


def test_caught_error_does_not_commit_silently(database: Database):
    """PostgreSQL rolls back and answers COMMIT with ROLLBACK, which must not count as an acknowledgement."""

    def write() -> None:
        with database.write() as connection:
            INSERT.run(connection, row("a"))
            with suppress(IntegrityError):
                connection.execute(text("INSERT INTO project_statistics VALUES ('a', 't', 0, 0, 0)"))

    with pytest.raises(RuntimeError, match="rolled back the whole transaction"):
        write()
    assert stored(database) == 0


def test_queue_is_dropped_when_the_transaction_fails(database: Database):
    """The next transaction on the connection does not send it."""

    def fail() -> None:
        with database.write() as connection:
            INSERT.run(connection, row("a"))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fail()
    with database.write() as connection:
        INSERT.run(connection, row("b"))
    assert stored(database) == 1


def test_transaction_without_statements_is_not_begun(database: Database):
    """So there is nothing to roll back either."""
    with database.write() as connection:
        assert connection.connection.driver_connection.info.transaction_status.name == "IDLE"
