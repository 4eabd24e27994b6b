"""Long work is done once, in the background, and tells how it went."""

import threading
from collections.abc import Callable

import pytest
from sqlalchemy import update

from app.caller import TEAM_ADMIN, Caller, server_owner
from app.errors import Forbidden, NotFound
from app.services.identity import teams
from app.services.operations import jobs
from app.services.operations.jobs import Operation, Runner
from app.store import models
from app.store.database import Database

KIND = "test.count"


@pytest.fixture
def caller(database: Database) -> Caller:
    with database.write() as connection:
        return server_owner().within(teams.create(connection, server_owner(), name="team").id)


def asked(database: Database, caller: Caller, **arguments: object) -> Operation:
    with database.write() as connection:
        return jobs.create(connection, caller, KIND, project_id=None, arguments=arguments)


def now(database: Database, caller: Caller, operation: Operation) -> Operation:
    with database.read() as connection:
        return jobs.get(connection, caller, operation.id)


def doing(database: Database, act: Callable) -> Runner:
    return Runner(database, {KIND: act})


def test_the_result_is_kept_with_the_operation(database: Database, caller: Caller):
    """Whoever asked finds it there."""
    operation = asked(database, caller, to=3)
    assert doing(database, lambda one, progress: {"counted": one.arguments["to"]}).run_next()
    over = now(database, caller, operation)
    assert (over.status, over.result, over.error) == ("done", {"counted": 3}, None)
    assert over.finished_at_epoch >= operation.created_at_epoch


def test_operations_are_done_in_the_order_of_asking_and_once(database: Database, caller: Caller):
    """The oldest first; then there is nothing left."""
    wanted = [asked(database, caller).id for _ in range(3)]
    done: list[str] = []
    runner = doing(database, lambda one, progress: done.append(one.id) or {})
    while runner.run_next():
        pass
    assert done == wanted


def test_a_failure_is_told_and_stops_nobody(database: Database, caller: Caller):
    """The next operation is another matter."""
    first, second = asked(database, caller, fail=True), asked(database, caller)

    def act(one, progress):
        if one.arguments:
            raise ValueError("cannot count")
        return {}

    runner = doing(database, act)
    assert runner.run_next()
    assert runner.run_next()
    assert (now(database, caller, first).status, now(database, caller, first).error) == ("failed", "cannot count")
    assert now(database, caller, second).status == "done"


def test_progress_is_seen_while_it_runs(database: Database, caller: Caller):
    """`done` of `total`."""
    operation = asked(database, caller)
    seen = []

    def act(one, progress):
        progress(2, 10)
        seen.append(now(database, caller, operation))
        return {}

    doing(database, act).run_next()
    assert [(one.status, one.done, one.total) for one in seen] == [("running", 2, 10)]


def test_stopping_gives_an_operation_back(database: Database, caller: Caller):
    """The next server begins it again."""
    operation, begun = asked(database, caller), threading.Event()

    def act(one, progress):
        begun.set()
        while True:
            progress(0, None)

    runner = doing(database, act)
    runner.start()
    assert begun.wait(10)
    runner.close(grace_seconds=10)
    assert now(database, caller, operation).status == "pending"
    assert doing(database, lambda one, progress: {}).run_next()
    assert now(database, caller, operation).status == "done"


def test_an_operation_of_a_live_server_is_left_alone(database: Database, caller: Caller):
    """Its heartbeat is fresh: two servers do not do it twice."""
    asked(database, caller)
    taken: list[bool] = []

    def act(one, progress):
        taken.append(doing(database, lambda *_: {}).run_next())
        return {}

    doing(database, act).run_next()
    assert taken == [False]


def test_an_operation_whose_server_fell_silent_is_taken_over(database: Database, caller: Caller):
    """A minute without a heartbeat means that it died."""
    operation = asked(database, caller)
    dead = {"status": "running", "owner": "dead", "heartbeat_at_epoch": 1}
    with database.write() as connection:
        connection.execute(update(models.operations).where(models.operations.c.id == operation.id).values(dead))
    assert doing(database, lambda one, progress: {}).run_next()


def test_a_foreign_operation_looks_missing(database: Database, caller: Caller):
    """Reading another team's operation answers like reading one that never was."""
    operation = asked(database, caller)
    with database.write() as connection:
        other = server_owner().within(teams.create(connection, server_owner(), name="other").id)
    with pytest.raises(NotFound):
        now(database, other, operation)


def test_reading_needs_team_admin(database: Database, caller: Caller):
    """Progress and results are for those who may ask for it."""
    operation = asked(database, caller)
    with pytest.raises(Forbidden, match=TEAM_ADMIN):
        now(database, Caller(team_id=caller.team_id), operation)
