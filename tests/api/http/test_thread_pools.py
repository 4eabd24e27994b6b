"""Automatic retries: of interrupted reads, and of writes of which nothing was done."""

import asyncio
import threading
from collections.abc import Callable
from types import SimpleNamespace

import pytest

from app.api.http.thread_pools import ThreadPools, reading, searching, writing, writing_in_slices
from app.errors import DatabaseConnectionLost, NothingDone, Unavailable

Decorator = Callable[..., Callable[..., object]]


def attempts(decorate: Decorator, failure: type[Unavailable], *, failures: int) -> tuple[int, bool]:
    """Return how often a handler that fails this many times was called, and whether it succeeded in the end."""
    calls = 0
    thread_pools = ThreadPools()

    def handler(*, request: object) -> str:
        nonlocal calls
        calls += 1
        if calls <= failures:
            raise failure("down")
        return "reply"

    try:
        asyncio.run(decorate(handler)(request=SimpleNamespace(app_state=SimpleNamespace(thread_pools=thread_pools))))  # type: ignore[arg-type]
    except failure:
        return calls, False
    finally:
        thread_pools.close()
    return calls, True


@pytest.mark.parametrize("decorate", [reading, searching])
@pytest.mark.parametrize("failure", [DatabaseConnectionLost, NothingDone])
def test_interrupted_read_is_retried_a_few_times(decorate: Decorator, failure: type[Unavailable]):
    """After that, the client gets the error."""
    assert attempts(decorate, failure, failures=2) == (3, True)
    assert attempts(decorate, failure, failures=9) == (3, False)


def test_write_is_retried_only_when_nothing_was_done():
    """After a lost connection, nobody knows whether it was committed."""
    assert attempts(writing, NothingDone, failures=2) == (3, True)
    assert attempts(writing, DatabaseConnectionLost, failures=1) == (1, False)


@pytest.mark.parametrize("failure", [DatabaseConnectionLost, NothingDone])
def test_write_in_slices_is_never_retried(failure: type[Unavailable]):
    """Some of its slices may be committed."""
    assert attempts(writing_in_slices, failure, failures=1) == (1, False)


@pytest.mark.parametrize("decorate", [reading, writing])
def test_outage_is_not_retried(decorate: Decorator):
    """Retries would only fill the queue."""
    assert attempts(decorate, Unavailable, failures=1) == (1, False)


@pytest.mark.parametrize("connections", [4, 6, 12, 200])
def test_every_reader_thread_has_a_connection(connections: int):
    """One connection is left for background tasks, as long as there are enough."""
    readers = connections - connections // 3
    before = threading.active_count()
    thread_pools = ThreadPools.for_remote_database(readers=readers, writers=1)
    try:
        reader_threads = threading.active_count() - before - 1
    finally:
        thread_pools.close()
    assert 3 <= reader_threads <= min(readers, 7)
