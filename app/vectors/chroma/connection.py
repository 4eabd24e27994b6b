"""One connection to Chroma's HTTP API, shared by all threads: states, time limits, reconnecting, backing off."""

import threading
import time
from dataclasses import dataclass
from typing import Any, Final, Literal

import httpx
import msgspec
import structlog

from app.vectors.chroma.client_config import STANDARD, Access
from app.vectors.chroma.server import Server
from app.vectors.chroma.vacuum import GoOn
from app.vectors.errors import ChromaRefused, ConnectionLost, TimedOut, VectorsUnavailable

_log = structlog.get_logger(__name__)

State = Literal["connecting", "ready", "unavailable"]

BACKOFF_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 2.0
_NOT_CHROMA: Final = "What answers at that address is not Chroma."


class CollectionGone(ChromaRefused):
    """There is no such collection (any more)."""


class ServerBroken(ChromaRefused):
    """Chroma failed inside: its folder was deleted under it, or its files are damaged."""


class Limits(msgspec.Struct, frozen=True):
    """What the server says of itself before the first call."""

    max_batch_size: int = 100
    supports_base64_encoding: bool = False


@dataclass(frozen=True, slots=True)
class _Link:
    """An open connection; a reconnect makes another."""

    client: httpx.Client
    limits: Limits


class Connection:
    """Sends requests. The first caller connects while the others wait for that one attempt.

    A failed call reconnects and is tried once more. When that fails too, every call fails at once for ten seconds, so
    that a dead server costs its callers nothing and is not stormed when it comes back.
    """

    def __init__(self, server: Server, *, access: Access = STANDARD, backoff_seconds: float = BACKOFF_SECONDS) -> None:
        self._server = server
        self._access = access
        self._backoff_seconds = backoff_seconds
        self._lock = threading.Lock()
        self._link: _Link | None = None
        self._retry_at = 0.0
        self._renewed_at = float("-inf")
        self._last_failure: VectorsUnavailable | None = None

    @property
    def state(self) -> State:
        """Say where the connection stands, without waiting for anything."""
        if self._link is not None:
            return "ready"
        return "unavailable" if self._last_failure else "connecting"

    @property
    def last_error(self) -> str | None:
        """What went wrong last; None while all is well."""
        return str(self._last_failure) if self._last_failure else None

    @property
    def backoff_seconds(self) -> float:
        """How long calls will still fail at once."""
        return max(0.0, self._retry_at - time.monotonic()) if self._last_failure else 0.0

    def limits(self) -> Limits:
        """Return the server's limits, connecting if need be."""
        return self._linked(time.monotonic() + _CONNECT_SECONDS).limits

    def send(self, method: str, path: str, *, timeout_seconds: float, body: Any = None) -> Any:
        """Return the decoded answer. The time limit covers waiting, connecting and the second try."""
        deadline = time.monotonic() + timeout_seconds
        link = self._linked(deadline)
        try:
            return self._exchange(link, method, path, body, deadline)
        except TimedOut as failure:
            self._give_up(link, failure)
            raise
        except (ConnectionLost, ServerBroken) as failure:
            _log.warning("chroma_call_failed", path=path, reason=str(failure))
            self._renew_if_broken(failure)
        link = self._connect_once(link, deadline)
        try:
            return self._exchange(link, method, path, body, deadline)
        except (ConnectionLost, TimedOut) as failure:
            self._give_up(link, failure)
            raise

    def renew(self) -> None:
        """Start the server afresh; calls on their way are tried again."""
        self._server.renew()

    def vacuum(self, go_on: GoOn) -> None:
        """Let the server vacuum its folder; calls fail meanwhile, and connect at once afterwards."""
        try:
            self._server.vacuum(go_on)
        finally:
            self._retry_at = 0.0

    def close(self) -> None:
        """Close the connection and stop the server, if it is ours."""
        with self._lock:
            self._unlink()
            self._server.close()

    def _linked(self, deadline: float) -> _Link:
        link = self._link
        if link is None:
            self._refuse_while_backing_off()
            return self._connect_once(None, deadline)
        return link

    def _connect_once(self, broken: _Link | None, deadline: float) -> _Link:
        """Connect, unless another thread has done so, or failed to, while this one waited."""
        if not self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise TimedOut("Chroma is being connected to, and that takes long.")
        try:
            if self._link is not None and self._link is not broken:
                return self._link
            self._unlink()
            self._refuse_while_backing_off()
            self._link = self._connect(min(_CONNECT_SECONDS, deadline - time.monotonic()))
            self._last_failure = None
            return self._link
        finally:
            self._lock.release()

    def _connect(self, timeout_seconds: float) -> _Link:
        try:
            client = self._client(self._server.address())
        except VectorsUnavailable as failure:
            self._back_off(failure)
            raise
        try:
            answer = self._request(client, "GET", "/api/v2/pre-flight-checks", None, timeout_seconds)
            return _Link(client, msgspec.convert(answer, Limits))
        except (msgspec.ValidationError, VectorsUnavailable) as cause:
            client.close()
            lost = cause if isinstance(cause, ConnectionLost | TimedOut) else ConnectionLost(_NOT_CHROMA)
            self._back_off(lost)
            raise lost from cause

    def _client(self, address: str) -> httpx.Client:
        try:
            trusted = self._access.trusted
        except OSError as cause:  # the file of certificates was there when the settings were read
            raise ConnectionLost("The certificates for Chroma cannot be read.") from cause
        return httpx.Client(base_url=address, headers=self._access.headers, verify=trusted, trust_env=False)

    def _refuse_while_backing_off(self) -> None:
        failure = self._last_failure
        if failure is not None and time.monotonic() < self._retry_at:
            raise type(failure)(str(failure))

    def _renew_if_broken(self, failure: VectorsUnavailable) -> None:
        """Start our own server afresh, at most once in a while: one damaged collection must not restart it for ever."""
        if isinstance(failure, ServerBroken) and time.monotonic() > self._renewed_at + self._backoff_seconds:
            self._renewed_at = time.monotonic()
            self._server.renew()

    def _unlink(self) -> None:
        if self._link is not None:
            self._link.client.close()
            self._link = None

    def _give_up(self, link: _Link, failure: VectorsUnavailable) -> None:
        with self._lock:
            if self._link is link:
                self._unlink()
                self._back_off(failure)

    def _back_off(self, failure: VectorsUnavailable) -> None:
        self._last_failure = failure
        self._retry_at = time.monotonic() + self._backoff_seconds
        _log.warning("chroma_unavailable", reason=str(failure), retry_seconds=self._backoff_seconds)

    def _exchange(self, link: _Link, method: str, path: str, body: Any, deadline: float) -> Any:
        return self._request(link.client, method, self._access.path + path, body, deadline - time.monotonic())

    def _request(self, client: httpx.Client, method: str, path: str, body: Any, timeout_seconds: float) -> Any:
        if timeout_seconds <= 0:
            raise TimedOut("Chroma did not answer in time.")
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"}
        try:
            reply = client.request(method, path, content=content, headers=headers, timeout=timeout_seconds)
        except httpx.TimeoutException as cause:
            raise TimedOut("Chroma did not answer in time.") from cause
        except (httpx.HTTPError, RuntimeError) as cause:  # RuntimeError: another thread closed the client
            raise ConnectionLost(f"Chroma cannot be reached ({type(cause).__name__}).") from cause
        return _answer(reply)


def _answer(reply: httpx.Response) -> Any:
    """Return the decoded body of a success; raise what the failure means."""
    if reply.is_success:
        try:
            return msgspec.json.decode(reply.content)
        except msgspec.DecodeError as cause:
            raise ConnectionLost(_NOT_CHROMA) from cause
    text = reply.text[:300]
    if reply.status_code == httpx.codes.NOT_FOUND:
        raise CollectionGone(text)
    if reply.is_server_error:
        raise ServerBroken(text)
    raise ChromaRefused(text)
