"""A database with a final check: each transaction runs it before it commits."""

from collections.abc import Callable
from contextlib import AbstractContextManager

import pytest
from sqlalchemy import Connection, insert
from sqlalchemy.exc import IntegrityError

from app.clock import now_ms
from app.store.database import Database
from app.store.models import teams
from app.store.prepared import PreparedStatement

Begin = Callable[[Database], AbstractContextManager[Connection]]

add_team = PreparedStatement(
    insert(teams), tuple, ("id", "slug", "name", "created_at_epoch", "updated_at_epoch", "metadata")
)


class RefusedError(Exception):
    """What the check raises."""


def refuse() -> None:
    raise RefusedError


def a_team(slug: str) -> dict[str, object]:
    return {
        "id": slug,
        "slug": slug,
        "name": slug,
        "created_at_epoch": now_ms(),
        "updated_at_epoch": now_ms(),
        "metadata": {},
    }


def team_ids(database: Database) -> list[str]:
    with database.read() as connection:
        return list(connection.exec_driver_sql("SELECT id FROM teams ORDER BY id").scalars())


@pytest.mark.parametrize("begin", [Database.read, Database.read_one, Database.write, Database.insert])
def test_every_transaction_is_checked(database: Database, begin: Begin):
    """Whether it reads or writes."""
    with pytest.raises(RefusedError), begin(database.with_final_check(refuse)):
        pass


@pytest.mark.parametrize("begin", [Database.write, Database.insert])
def test_refused_write_is_rolled_back(database: Database, begin: Begin):
    """The database without the check is not affected."""
    with pytest.raises(RefusedError), begin(database.with_final_check(refuse)) as connection:
        add_team.run(connection, a_team("refused"))
    with begin(database) as connection:
        add_team.run(connection, a_team("kept"))

    assert team_ids(database) == ["kept"]


@pytest.mark.parametrize("begin", [Database.write, Database.insert])
def test_accepted_write_is_committed(database: Database, begin: Begin):
    """The check runs once for each transaction."""
    checks: list[None] = []
    with begin(database.with_final_check(lambda: checks.append(None))) as connection:
        add_team.run(connection, a_team("accepted"))

    assert (team_ids(database), len(checks)) == (["accepted"], 1)


def test_errors_of_the_transaction_come_before_the_check(database: Database):
    """Also the error of a statement that was queued, and is sent only with the commit."""
    with database.write() as connection:
        add_team.run(connection, a_team("taken"))

    with pytest.raises(IntegrityError), database.with_final_check(refuse).write() as connection:
        add_team.run(connection, a_team("taken"))
