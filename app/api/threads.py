"""Reads and writes wait in queues of their own, so that a hundred writers never starve a reader."""

import asyncio
import contextvars
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial, wraps
from typing import Any, Final, ParamSpec, TypeVar

from app.errors import Unavailable

P = ParamSpec("P")
T = TypeVar("T")

QUEUE_TIMEOUT_SECONDS: Final = 10.0


class Workers:
    """The threads in which handlers run. Database connections are as many as there are threads."""

    def __init__(self, *, readers: int = 8, writers: int = 1) -> None:
        """Start both pools; SQLite has one writer anyway, and a thread's queue is first come, first served."""
        self._readers = ThreadPoolExecutor(readers, thread_name_prefix="read")
        self._writers = ThreadPoolExecutor(writers, thread_name_prefix="write")

    async def read(self, call: Callable[[], T]) -> T:
        """Run a call that only reads."""
        return await _in(self._readers, call)

    async def write(self, call: Callable[[], T]) -> T:
        """Run a call that writes."""
        return await _in(self._writers, call)

    def close(self) -> None:
        """Finish what runs, drop what waits."""
        self._readers.shutdown(cancel_futures=True)
        self._writers.shutdown(cancel_futures=True)


async def _in(pool: ThreadPoolExecutor, call: Callable[[], T]) -> T:
    """Run a call in a pool's thread; Unavailable when no thread is free in time. What has begun is never cut off."""
    future = pool.submit(contextvars.copy_context().run, call)
    loop = asyncio.get_running_loop()
    expiry = loop.call_later(QUEUE_TIMEOUT_SECONDS, future.cancel)
    try:
        return await asyncio.shield(asyncio.wrap_future(future))
    except asyncio.CancelledError:
        if future.cancelled():
            raise Unavailable("The server is too busy.") from None
        raise
    finally:
        expiry.cancel()


def reading(handler: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Run a synchronous handler, which takes the `request` by name, among the readers."""

    @wraps(handler)
    async def in_thread(*args: P.args, **kwargs: P.kwargs) -> T:
        return await _workers(kwargs).read(partial(handler, *args, **kwargs))

    return in_thread


def writing(handler: Callable[P, T]) -> Callable[P, Awaitable[T]]:
    """Run a synchronous handler, which takes the `request` by name, among the writers."""

    @wraps(handler)
    async def in_thread(*args: P.args, **kwargs: P.kwargs) -> T:
        return await _workers(kwargs).write(partial(handler, *args, **kwargs))

    return in_thread


def _workers(arguments: dict[str, Any]) -> Workers:
    workers: Workers = arguments["request"].parts.workers
    return workers
