"""What is tried again by itself: reads that were cut off, and writes of which nothing was done."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from app.api.http.thread_pools import ThreadPools, reading, searching, writing, writing_in_slices
from app.errors import DatabaseConnectionLost, NothingDone, Unavailable

Decorator = Callable[..., Callable[..., object]]


def attempts(decorate: Decorator, failure: type[Unavailable], *, failures: int) -> tuple[int, bool]:
    """Return how often a handler that fails so many times was called, and whether it answered in the end."""
    calls = 0
    thread_pools = ThreadPools()

    def handler(*, request: object) -> str:
        nonlocal calls
        calls += 1
        if calls <= failures:
            raise failure("away")
        return "answer"

    try:
        asyncio.run(decorate(handler)(request=SimpleNamespace(app_state=SimpleNamespace(thread_pools=thread_pools))))  # type: ignore[arg-type]
    except failure:
        return calls, False
    finally:
        thread_pools.close()
    return calls, True


@pytest.mark.parametrize("decorate", [reading, searching])
@pytest.mark.parametrize("failure", [DatabaseConnectionLost, NothingDone])
def test_what_only_reads_is_tried_again_a_few_times(decorate: Decorator, failure: type[Unavailable]):
    """Then the client is told."""
    assert attempts(decorate, failure, failures=2) == (3, True)
    assert attempts(decorate, failure, failures=9) == (3, False)


def test_a_write_is_tried_again_only_when_nothing_of_it_was_done():
    """Of one that lost its connection nobody knows."""
    assert attempts(writing, NothingDone, failures=2) == (3, True)
    assert attempts(writing, DatabaseConnectionLost, failures=1) == (1, False)


@pytest.mark.parametrize("failure", [DatabaseConnectionLost, NothingDone])
def test_what_writes_in_slices_is_never_tried_again(failure: type[Unavailable]):
    """Some of its slices stand."""
    assert attempts(writing_in_slices, failure, failures=1) == (1, False)


@pytest.mark.parametrize("decorate", [reading, writing])
def test_while_the_database_is_away_all_fail_at_once(decorate: Decorator):
    """Trying again would only queue up."""
    assert attempts(decorate, Unavailable, failures=1) == (1, False)


@pytest.mark.parametrize("connections", [4, 6, 12, 200])
def test_no_thread_that_reads_waits_for_a_connection(connections: int):
    """One is left for what the server does by itself, as long as there are that many."""
    readers = connections - connections // 3
    before = threading.active_count()
    thread_pools = ThreadPools.for_remote_database(readers=readers, writers=1)
    try:
        threads_that_read = threading.active_count() - before - 1
    finally:
        thread_pools.close()
    assert 3 <= threads_that_read <= min(readers, 7)
