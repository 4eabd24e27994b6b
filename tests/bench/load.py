"""A load generator for keep-alive HTTP on loopback, light enough not to compete with the server for its core."""

import asyncio
import itertools
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from urllib.parse import urlsplit

import uvloop

TIMEOUT_SECONDS = 120.0


@dataclass(frozen=True)
class Load:
    """The result of a run: latencies in milliseconds, ascending; failures are replies other than 2xx."""

    requests: int
    seconds: float
    failures: int
    latencies_ms: Sequence[float]
    bodies: frozenset[bytes]

    @property
    def per_second(self) -> float:
        """Requests per second."""
        return self.requests / self.seconds

    def percentile_ms(self, share: float) -> float:
        """Return the latency below which `share` of the requests were answered."""
        return self.latencies_ms[min(len(self.latencies_ms) - 1, int(len(self.latencies_ms) * share))]


def request(method: str, path: str, *, key: str = "", body: bytes = b"") -> bytes:
    """Return the bytes of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    if key:
        lines.append(f"Authorization: Bearer {key}")
    if body:
        lines += ["Content-Type: application/json", f"Content-Length: {len(body)}"]
    return "\r\n".join([*lines, "", ""]).encode() + body


def run(url: str, requests: Iterable[bytes], *, count: int, connections: int = 16, keep_bodies: bool = False) -> Load:
    """Send `count` requests over `connections` at once; a shorter list is repeated."""
    to_send = itertools.islice(itertools.cycle(requests) if isinstance(requests, list) else iter(requests), count)
    return uvloop.run(_run(url, to_send, connections, keep_bodies))


async def _run(url: str, requests: Iterator[bytes], connections: int, keep_bodies: bool) -> Load:
    address = urlsplit(url)
    tally = _Tally(requests, keep_bodies)
    loop = asyncio.get_running_loop()
    finished = [loop.create_future() for _ in range(connections)]
    protocols = []
    for done in finished:
        _, protocol = await loop.create_connection(
            lambda done=done: _Connection(tally, done), address.hostname, address.port
        )
        protocols.append(protocol)
    started = time.perf_counter()
    for protocol in protocols:
        protocol.send_next()
    async with asyncio.timeout(TIMEOUT_SECONDS):
        await asyncio.gather(*finished)
    seconds = time.perf_counter() - started
    return Load(len(tally.latencies_ms), seconds, tally.failures, sorted(tally.latencies_ms), frozenset(tally.bodies))


class _Tally:
    """The requests still to send, and the replies so far."""

    def __init__(self, requests: Iterator[bytes], keep_bodies: bool) -> None:
        self._requests = requests
        self._keep_bodies = keep_bodies
        self.failures = 0
        self.latencies_ms: list[float] = []
        self.bodies: set[bytes] = set()

    def next(self) -> bytes | None:
        """Return the next request, or None when all are sent."""
        return next(self._requests, None)

    def note(self, seconds: float, head: bytes, body: bytes) -> None:
        """Count a reply."""
        self.latencies_ms.append(seconds * 1000)
        self.failures += not head.startswith(b"HTTP/1.1 2")
        if self._keep_bodies:
            self.bodies.add(body)


class _Connection(asyncio.Protocol):
    """A connection that sends its next request once the last reply is complete."""

    def __init__(self, tally: _Tally, done: asyncio.Future[None]) -> None:
        self._tally = tally
        self._done = done
        self._buffer = b""
        self._sent_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]

    def send_next(self) -> None:
        """Send a request, or finish when there are none left."""
        next_request = self._tally.next()
        if next_request is None:
            self._transport.close()
            if not self._done.done():
                self._done.set_result(None)
            return
        self._sent_at = time.perf_counter()
        self._transport.write(next_request)

    def data_received(self, data: bytes) -> None:
        """Receive part of a reply."""
        self._buffer += data
        head, separator, body = self._buffer.partition(b"\r\n\r\n")
        if not separator or len(body) < _length(head):
            return
        self._buffer = b""
        self._tally.note(time.perf_counter() - self._sent_at, head, body)
        self.send_next()

    def connection_lost(self, failure: Exception | None) -> None:
        """Fail the run if the server closes the connection."""
        if not self._done.done():
            self._done.set_exception(failure or ConnectionError("the server closed the connection"))


def _length(head: bytes) -> int:
    lowered = head.lower()
    start = lowered.find(b"content-length:")
    return 0 if start < 0 else int(lowered[start + 15 :].split(b"\r\n", 1)[0])


def timed(work: Callable[[], object], *, times: int) -> float:
    """Return how many times per second `work` runs in this thread."""
    started = time.perf_counter()
    for _ in range(times):
        work()
    return times / (time.perf_counter() - started)
