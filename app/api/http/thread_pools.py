"""Threads for handlers. Reads, searches and writes have separate queues, so that many writers never starve a reader.

The pools are our own because every request passes through one twice: a hop through concurrent.futures costs 14 µs of
CPU here, this one 4.
"""

import asyncio
import contextvars
import threading
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import partial, wraps
from queue import SimpleQueue
from typing import Any, Final, ParamSpec, Self, TypeVar

from app.errors import DatabaseConnectionLost, NothingDone, Unavailable

P = ParamSpec("P")
T = TypeVar("T")

QUEUE_TIMEOUT_SECONDS: Final = 10.0
_INTERRUPTED: Final = (DatabaseConnectionLost, NothingDone)
"""What a read is retried after. Other outages are not retried: while the database is down, requests fail at once."""
_RETRY_DELAYS_SECONDS: Final = (0.02, 0.1)


class ThreadPools:
    """The threads in which handlers run. Each thread that uses the database has a connection of its own."""

    def __init__(self, *, readers: int = 3, searchers: int = 2, writers: int = 1) -> None:
        """Start the pools. The defaults are for SQLite, which has a single writer anyway; its queue is fair.

        Fewer threads compete less for the GIL: GET reaches 3,300/s with 3 readers and 2,900 with 8; keyword search
        137/s with 2 searchers and 107 with 4. A search may wait for the vector index, and must not block other reads.
        """
        self._readers = _Pool(readers, "read")
        self._searchers = _Pool(searchers, "search")
        self._writers = _Pool(writers, "write")

    @classmethod
    def for_remote_database(cls, *, readers: int, writers: int) -> Self:
        """Return pools for a database in another process, with this many connections.

        There, threads wait without holding the GIL: GET reaches 1,770/s with 5 readers and 1,640 with 3. Two of the
        connections are for searchers, and one is for background tasks.
        """
        return cls(readers=max(1, min(5, readers - 3)), writers=writers)

    async def read(self, call: Callable[[], T]) -> T:
        """Run a short call that only reads. Raises Unavailable when no thread is free in time."""
        return await self._readers.run(call)

    async def search(self, call: Callable[[], T]) -> T:
        """Run a long read, or a wait for the vector index. Raises Unavailable when no thread is free in time."""
        return await self._searchers.run(call)

    async def write(self, call: Callable[[], T]) -> T:
        """Run a call that writes. Raises Unavailable when no thread is free in time."""
        return await self._writers.run(call)

    def close(self, *, grace_seconds: float = 2.0) -> None:
        """Finish the queued calls and stop the threads; what exceeds the grace period ends with the process."""
        deadline = time.monotonic() + grace_seconds
        self._readers.close(deadline)
        self._searchers.close(deadline)
        self._writers.close(deadline)


class _Job:
    """A call that waits for a thread. Either a thread or the time limit takes it, never both."""

    __slots__ = ("_calls", "_context", "_future", "_loop")

    def __init__(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
        self._calls = [call]  # list.pop() is atomic: it decides between a thread and the time limit
        self._context = contextvars.copy_context()
        self._loop = loop
        self._future = future

    def run(self) -> None:
        """Make the call in this thread, unless it has expired, and hand the outcome to the event loop."""
        try:
            call = self._calls.pop()
        except IndexError:
            return
        try:
            result = self._context.run(call)
        except BaseException as failure:  # noqa: BLE001 - the waiting request must learn of any failure
            self._hand_over(None, failure)
        else:
            self._hand_over(result, None)

    def _hand_over(self, result: Any, failure: BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server has stopped, and no request waits any more
            self._loop.call_soon_threadsafe(self._resolve, result, failure)

    def expire(self) -> None:
        """Stop waiting for a thread; a call that has begun is never interrupted."""
        if self._calls:
            self._calls.clear()
            self._resolve(None, Unavailable("The server is too busy."))

    def _resolve(self, result: Any, failure: BaseException | None) -> None:
        if self._future.done():  # the client has disconnected
            return
        if failure is None:
            self._future.set_result(result)
        else:
            self._future.set_exception(failure)


class _Pool:
    """Threads that take jobs from one queue."""

    def __init__(self, threads: int, name: str) -> None:
        self._queue: SimpleQueue[_Job | None] = SimpleQueue()
        self._threads = [
            threading.Thread(target=self._work, name=f"{name}-{number}", daemon=True) for number in range(threads)
        ]
        for thread in self._threads:
            thread.start()

    async def run(self, call: Callable[[], T]) -> T:
        """Run a call in one of the threads. Raises Unavailable when none is free in time."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[T] = loop.create_future()
        job = _Job(call, loop, future)
        self._queue.put(job)
        expiry = loop.call_later(QUEUE_TIMEOUT_SECONDS, job.expire)
        try:
            return await future
        finally:
            expiry.cancel()

    def close(self, deadline: float) -> None:
        for _ in self._threads:
            self._queue.put(None)
        for thread in self._threads:
            thread.join(max(0.0, deadline - time.monotonic()))

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            job.run()


def retrying(call: Callable[[], T], *, retry_on: tuple[type[Unavailable], ...] = _INTERRUPTED) -> Callable[[], T]:
    """Return a call that retries a few times after these errors.

    The default is for calls that only read. A call that writes must be a single transaction, and may be retried only
    on NothingDone: nothing of an earlier attempt may be left when it starts again.
    """

    def attempt() -> T:
        for delay_seconds in _RETRY_DELAYS_SECONDS:
            try:
                return call()
            except retry_on:
                time.sleep(delay_seconds)
        return call()

    return attempt


def reading(handler: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Run a synchronous handler with a `request` keyword argument in a reader thread."""
    return _in_thread(handler, ThreadPools.read, _INTERRUPTED)


def searching(handler: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Run a synchronous handler with a `request` keyword argument in a searcher thread."""
    return _in_thread(handler, ThreadPools.search, _INTERRUPTED)


def writing(handler: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Run a synchronous handler of one transaction, with a `request` keyword argument, in a writer thread."""
    return _in_thread(handler, ThreadPools.write, (NothingDone,))


def writing_in_slices(handler: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Run a handler of many transactions in a reader thread, where it blocks no writer. Never retried."""
    return _in_thread(handler, ThreadPools.read, ())


def _in_thread(
    handler: Callable[P, T],
    run: Callable[[ThreadPools, Callable[[], T]], Awaitable[T]],
    retry_on: tuple[type[Unavailable], ...],
) -> Callable[P, Awaitable[T]]:
    @wraps(handler)
    async def in_thread(*args: P.args, **kwargs: P.kwargs) -> T:
        call = retrying(partial(handler, *args, **kwargs), retry_on=retry_on)
        return await run(_thread_pools(kwargs), call)

    return in_thread


def _thread_pools(arguments: dict[str, Any]) -> ThreadPools:
    thread_pools: ThreadPools = arguments["request"].app_state.thread_pools
    return thread_pools
