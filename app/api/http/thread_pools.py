"""Reads, searches and writes wait in queues of their own, so that a hundred writers never starve a reader.

The pools are our own because each request passes through one twice: a hop through concurrent.futures costs 14 µs of
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

from app.errors import ConnectionLost, NothingDone, Unavailable

P = ParamSpec("P")
T = TypeVar("T")

QUEUE_TIMEOUT_SECONDS: Final = 10.0
_CUT_OFF: Final = (ConnectionLost, NothingDone)
_PAUSES_SECONDS: Final = (0.02, 0.1)
"""Before each other attempt. Only what was cut off is tried again: while the database is away, all fail at once."""


class Workers:
    """The threads in which handlers run. Database connections are as many as there are threads."""

    def __init__(self, *, readers: int = 3, searchers: int = 2, writers: int = 1) -> None:
        """Start the pools; SQLite has one writer anyway, and a queue is first come, first served.

        Few threads fight less for the interpreter: GET 3,300/s with 3 readers, 2,900 with 8; keyword search 137/s with
        2 searchers, 107 with 4. A search may wait for the vector index, and nobody else should wait behind it.
        """
        self._readers = _Pool(readers, "read")
        self._searchers = _Pool(searchers, "search")
        self._writers = _Pool(writers, "write")

    @classmethod
    def far_away(cls, *, readers: int, writers: int) -> Self:
        """Return pools for a database in another process, with so many connections.

        There threads wait without the interpreter: GET 1,770/s with 5 readers, 1,640 with 3. Two connections are the
        searchers', one is for what the server does by itself.
        """
        return cls(readers=max(1, min(5, readers - 3)), writers=writers)

    async def read(self, call: Callable[[], T]) -> T:
        """Run a call that only reads, and not for long."""
        return await self._readers.run(call)

    async def search(self, call: Callable[[], T]) -> T:
        """Run a call that reads much, or waits for the vector index."""
        return await self._searchers.run(call)

    async def write(self, call: Callable[[], T]) -> T:
        """Run a call that writes."""
        return await self._writers.run(call)

    def close(self, *, grace_seconds: float = 2.0) -> None:
        """Finish what was asked for, then end the threads; what takes longer ends with the process, unacknowledged."""
        deadline = time.monotonic() + grace_seconds
        self._readers.close(deadline)
        self._searchers.close(deadline)
        self._writers.close(deadline)


class _Job:
    """A call that waits for a thread. Whoever takes it, a thread or the time limit, does so once."""

    __slots__ = ("_calls", "_context", "_future", "_loop")

    def __init__(self, call: Callable[[], Any], loop: asyncio.AbstractEventLoop, future: asyncio.Future[Any]) -> None:
        self._calls = [call]  # list.pop() is atomic: it decides between a thread and the time limit
        self._context = contextvars.copy_context()
        self._loop = loop
        self._future = future

    def run(self) -> None:
        """Call it in this thread, unless it has expired, and hand the outcome to the event loop."""
        try:
            call = self._calls.pop()
        except IndexError:
            return
        try:
            result = self._context.run(call)
        except BaseException as failure:  # noqa: BLE001 - whatever it is, the one who waits must learn of it
            self._hand_over(None, failure)
        else:
            self._hand_over(result, None)

    def _hand_over(self, result: Any, failure: BaseException | None) -> None:
        with suppress(RuntimeError):  # the loop is closed: the server has ended, and nobody waits any more
            self._loop.call_soon_threadsafe(self._settle, result, failure)

    def expire(self) -> None:
        """Give up waiting; what has begun is never cut off."""
        if self._calls:
            self._calls.clear()
            self._settle(None, Unavailable("The server is too busy."))

    def _settle(self, result: Any, failure: BaseException | None) -> None:
        if self._future.done():  # the client has gone
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
        """Run a call in one of the threads; Unavailable when none is free in time."""
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


def patient(call: Callable[[], T], *, again_after: tuple[type[Unavailable], ...] = _CUT_OFF) -> Callable[[], T]:
    """Return a call that tries again, a few times, where that can do no harm; what only reads does none at all.

    A call that writes must be one transaction: nothing of it may stand when it begins anew.
    """

    def trying() -> T:
        for pause_seconds in _PAUSES_SECONDS:
            try:
                return call()
            except again_after:
                time.sleep(pause_seconds)
        return call()

    return trying


def reading(handler: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Run a synchronous handler, which takes the `request` by name, among the readers."""
    return _in_thread(handler, Workers.read, _CUT_OFF)


def searching(handler: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Run a synchronous handler, which takes the `request` by name, among the searchers."""
    return _in_thread(handler, Workers.search, _CUT_OFF)


def writing(handler: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Run a synchronous handler of one transaction, which takes the `request` by name, among the writers."""
    return _in_thread(handler, Workers.write, (NothingDone,))


def writing_in_slices(handler: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Run a handler of many transactions where it keeps no writer waiting; what it has done stands."""
    return _in_thread(handler, Workers.read, ())


def _in_thread(
    handler: Callable[P, T],
    run: Callable[[Workers, Callable[[], T]], Awaitable[T]],
    again_after: tuple[type[Unavailable], ...],
) -> Callable[P, Awaitable[T]]:
    @wraps(handler)
    async def in_thread(*args: P.args, **kwargs: P.kwargs) -> T:
        call = patient(partial(handler, *args, **kwargs), again_after=again_after)
        return await run(_workers(kwargs), call)

    return in_thread


def _workers(arguments: dict[str, Any]) -> Workers:
    workers: Workers = arguments["request"].parts.workers
    return workers
