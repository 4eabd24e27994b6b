"""Operations run once, in the background, and report their outcome."""

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


def queue(database: Database, caller: Caller, **arguments: object) -> Operation:
    with database.write() as connection:
        return jobs.create(connection, caller, KIND, project_id=None, arguments=arguments)


def current(database: Database, caller: Caller, operation: Operation) -> Operation:
    with database.read() as connection:
        return jobs.get(connection, caller, operation.id)


def runner_for(database: Database, act: Callable) -> Runner:
    return Runner(database, {KIND: act})


def test_result_is_stored_with_the_operation(database: Database, caller: Caller):
    """The client that requested it reads it from there."""
    operation = queue(database, caller, to=3)
    assert runner_for(database, lambda one, progress: {"counted": one.arguments["to"]}).run_next()
    finished = current(database, caller, operation)
    assert (finished.status, finished.result, finished.error) == ("done", {"counted": 3}, None)
    assert finished.finished_at_epoch >= operation.created_at_epoch


def test_operations_run_once_in_the_order_of_their_requests(database: Database, caller: Caller):
    """The oldest runs first; then nothing is left."""
    expected = [queue(database, caller).id for _ in range(3)]
    done: list[str] = []
    runner = runner_for(database, lambda one, progress: done.append(one.id) or {})
    while runner.run_next():
        pass
    assert done == expected


def test_failure_is_reported_and_does_not_stop_the_next_operation(database: Database, caller: Caller):
    """Operations are independent of each other."""
    first, second = queue(database, caller, fail=True), queue(database, caller)

    def act(one, progress):
        if one.arguments:
            raise ValueError("cannot count")
        return {}

    runner = runner_for(database, act)
    assert runner.run_next()
    assert runner.run_next()
    assert (current(database, caller, first).status, current(database, caller, first).error) == (
        "failed",
        "cannot count",
    )
    assert current(database, caller, second).status == "done"


def test_progress_is_visible_while_it_runs(database: Database, caller: Caller):
    """`done` of `total`."""
    operation = queue(database, caller)
    seen = []

    def act(one, progress):
        progress(2, 10)
        seen.append(current(database, caller, operation))
        return {}

    runner_for(database, act).run_next()
    assert [(one.status, one.done, one.total) for one in seen] == [("running", 2, 10)]


def test_stopping_releases_a_running_operation(database: Database, caller: Caller):
    """The next server starts it again."""
    operation, begun = queue(database, caller), threading.Event()

    def act(one, progress):
        begun.set()
        while True:
            progress(0, None)

    runner = runner_for(database, act)
    runner.start()
    assert begun.wait(10)
    runner.close(grace_seconds=10)
    assert current(database, caller, operation).status == "pending"
    assert runner_for(database, lambda one, progress: {}).run_next()
    assert current(database, caller, operation).status == "done"


def test_operation_of_a_live_server_is_not_taken_over(database: Database, caller: Caller):
    """Its heartbeat is fresh, so two servers never run it twice."""
    queue(database, caller)
    taken: list[bool] = []

    def act(one, progress):
        taken.append(runner_for(database, lambda *_: {}).run_next())
        return {}

    runner_for(database, act).run_next()
    assert taken == [False]


def test_operation_of_a_dead_server_is_taken_over(database: Database, caller: Caller):
    """A server that sent no heartbeat for a minute counts as dead."""
    operation = queue(database, caller)
    dead = {"status": "running", "owner": "dead", "heartbeat_at_epoch": 1}
    with database.write() as connection:
        connection.execute(update(models.operations).where(models.operations.c.id == operation.id).values(dead))
    assert runner_for(database, lambda one, progress: {}).run_next()


def test_operation_of_another_team_is_not_found(database: Database, caller: Caller):
    """The answer is the same as for one that never existed."""
    operation = queue(database, caller)
    with database.write() as connection:
        other = server_owner().within(teams.create(connection, server_owner(), name="other").id)
    with pytest.raises(NotFound):
        current(database, other, operation)


def test_reading_an_operation_requires_team_admin(database: Database, caller: Caller):
    """Progress and results are for those who may request it."""
    operation = queue(database, caller)
    with pytest.raises(Forbidden, match=TEAM_ADMIN):
        current(database, Caller(team_id=caller.team_id), operation)
