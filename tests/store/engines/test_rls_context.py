"""Which team the current task acts for."""

from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context

import pytest

from app.store.engines import rls_context
from app.store.engines.rls_context import EVERY_TEAM, NOBODY, current_team_id


def test_server_itself_acts_for_every_team():
    """Work that no request started is the server's own, and so is a caller without a team."""
    with ThreadPoolExecutor(1) as threads:
        assert threads.submit(current_team_id).result() == EVERY_TEAM
    with rls_context.acting_for(None):
        assert current_team_id() == EVERY_TEAM


def test_block_ends_where_it_began():
    """Also when it fails."""
    with rls_context.acting_for("outer"):
        with rls_context.acting_for("inner"):
            assert current_team_id() == "inner"
        assert current_team_id() == "outer"
        with pytest.raises(ZeroDivisionError), rls_context.acting_for("inner"):
            raise ZeroDivisionError
        assert current_team_id() == "outer"


def test_task_does_not_affect_the_one_that_started_it():
    """A request acts for nobody until its credential is known, and then for its team."""

    def request() -> list[str]:
        rls_context.act_for_nobody()
        before = current_team_id()
        rls_context.act_for("team")
        return [before, current_team_id()]

    assert copy_context().run(request) == [NOBODY, "team"]
    assert current_team_id() == EVERY_TEAM
