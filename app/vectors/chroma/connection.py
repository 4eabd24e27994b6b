"""The connection to Chroma's HTTP API, shared by all threads: state, time limits, reconnects and backoff."""

import threading
import time
from dataclasses import dataclass
from typing import Any, Final, Literal

import httpx
import msgspec
import structlog

from app.vectors.chroma.client_config import DEFAULT, ClientConfig
from app.vectors.chroma.server import Server
from app.vectors.chroma.vacuum import StopCheck
from app.vectors.errors import ChromaConnectionLost, ChromaRefused, TimedOut, VectorsUnavailable

_log = structlog.get_logger(__name__)

State = Literal["connecting", "ready", "unavailable"]

BACKOFF_SECONDS: Final = 10.0
_CONNECT_SECONDS: Final = 2.0
_NOT_CHROMA: Final = "The server at this address is not Chroma."


class CollectionGone(ChromaRefused):
    """The collection does not exist, or no longer exists."""


class ServerBroken(ChromaRefused):
    """Chroma has an internal error: its folder was deleted while in use, or its files are corrupt."""


class ServerLimits(msgspec.Struct, frozen=True):
    """The server's pre-flight checks."""

    max_batch_size: int = 100
    supports_base64_encoding: bool = False


@dataclass(frozen=True, slots=True)
class _Link:
    """An open connection; a reconnect creates a new one."""

    client: httpx.Client
    limits: ServerLimits


class Connection:
    """Sends requests. The first caller connects, and the others wait for that attempt.

    After a failed call it reconnects and retries once. If that fails too, all calls fail immediately for ten seconds: a
    dead server does not slow down its callers, and is not flooded when it comes back.
    """

    def __init__(
        self, server: Server, *, client_config: ClientConfig = DEFAULT, backoff_seconds: float = BACKOFF_SECONDS
    ) -> None:
        self._server = server
        self._client_config = client_config
        self._backoff_seconds = backoff_seconds
        self._lock = threading.Lock()
        self._link: _Link | None = None
        self._retry_at = 0.0
        self._renewed_at = float("-inf")
        self._last_failure: VectorsUnavailable | None = None

    @property
    def state(self) -> State:
        """The state of the connection. Never blocks."""
        if self._link is not None:
            return "ready"
        return "unavailable" if self._last_failure else "connecting"

    @property
    def last_error(self) -> str | None:
        """The last error; None while all is well."""
        return str(self._last_failure) if self._last_failure else None

    @property
    def backoff_seconds(self) -> float:
        """For how long calls will still fail immediately."""
        return max(0.0, self._retry_at - time.monotonic()) if self._last_failure else 0.0

    def limits(self) -> ServerLimits:
        """Return the server's limits; connect first if necessary."""
        return self._linked(time.monotonic() + _CONNECT_SECONDS).limits

    def send(self, method: str, path: str, *, timeout_seconds: float, body: Any = None) -> Any:
        """Return the decoded response. The time limit covers waiting, connecting and the retry.

        Raises VectorsUnavailable.
        """
        deadline = time.monotonic() + timeout_seconds
        link = self._linked(deadline)
        try:
            return self._exchange(link, method, path, body, deadline)
        except TimedOut as failure:
            self._give_up(link, failure)
            raise
        except (ChromaConnectionLost, ServerBroken) as failure:
            _log.warning("chroma_call_failed", path=path, reason=str(failure))
            self._renew_if_broken(failure)
        link = self._connect_once(link, deadline)
        try:
            return self._exchange(link, method, path, body, deadline)
        except (ChromaConnectionLost, TimedOut) as failure:
            self._give_up(link, failure)
            raise

    def renew(self) -> None:
        """Restart the server; calls in flight are retried."""
        self._server.renew()

    def vacuum(self, check_stop: StopCheck) -> None:
        """Have the server vacuum its folder. Calls fail meanwhile; the next one afterwards connects immediately."""
        try:
            self._server.vacuum(check_stop)
        finally:
            self._retry_at = 0.0

    def close(self) -> None:
        """Close the connection, and stop the server if it is our own."""
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
        """Connect, unless another thread connected or failed to while this one waited."""
        if not self._lock.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise TimedOut("Timed out connecting to Chroma.")
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
            checks = self._request(client, "GET", "/api/v2/pre-flight-checks", None, timeout_seconds)
            return _Link(client, msgspec.convert(checks, ServerLimits))
        except (msgspec.ValidationError, VectorsUnavailable) as cause:
            client.close()
            reason = cause if isinstance(cause, ChromaConnectionLost | TimedOut) else ChromaConnectionLost(_NOT_CHROMA)
            self._back_off(reason)
            raise reason from cause

    def _client(self, address: str) -> httpx.Client:
        try:
            verify = self._client_config.verify
        except OSError as cause:  # the CA file existed when the settings were validated
            raise ChromaConnectionLost("The CA file for Chroma cannot be read.") from cause
        return httpx.Client(base_url=address, headers=self._client_config.headers, verify=verify, trust_env=False)

    def _refuse_while_backing_off(self) -> None:
        failure = self._last_failure
        if failure is not None and time.monotonic() < self._retry_at:
            raise type(failure)(str(failure))

    def _renew_if_broken(self, failure: VectorsUnavailable) -> None:
        """Restart our own server, but rarely: one corrupt collection must not cause an endless series of restarts."""
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
        return self._request(link.client, method, self._client_config.path + path, body, deadline - time.monotonic())

    def _request(self, client: httpx.Client, method: str, path: str, body: Any, timeout_seconds: float) -> Any:
        if timeout_seconds <= 0:
            raise TimedOut("Chroma did not respond in time.")
        content = None if body is None else msgspec.json.encode(body)
        headers = {"Content-Type": "application/json"}
        try:
            response = client.request(method, path, content=content, headers=headers, timeout=timeout_seconds)
        except httpx.TimeoutException as cause:
            raise TimedOut("Chroma did not respond in time.") from cause
        except (httpx.HTTPError, RuntimeError) as cause:  # RuntimeError: another thread closed the client
            raise ChromaConnectionLost(f"Chroma cannot be reached ({type(cause).__name__}).") from cause
        return _decode(response)


def _decode(response: httpx.Response) -> Any:
    """Return the decoded body of a successful response; raise the matching error for a failed one."""
    if response.is_success:
        try:
            return msgspec.json.decode(response.content)
        except msgspec.DecodeError as cause:
            raise ChromaConnectionLost(_NOT_CHROMA) from cause
    text = response.text[:300]
    if response.status_code == httpx.codes.NOT_FOUND:
        raise CollectionGone(text)
    if response.is_server_error:
        raise ServerBroken(text)
    raise ChromaRefused(text)
