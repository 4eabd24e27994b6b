"""The connection to Chroma: state, time limits and backoff."""

import shutil
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from app.vectors.chroma.connection import Connection
from app.vectors.chroma.server import ChildServer, RemoteServer
from app.vectors.errors import ChromaConnectionLost, TimedOut, VectorsUnavailable


@pytest.fixture
def hanging_port() -> Iterator[socket.socket]:
    """A port that accepts connections and never responds."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener


def url(listener: socket.socket) -> str:
    return f"http://127.0.0.1:{listener.getsockname()[1]}"


def list_collections(connection: Connection, *, seconds: float = 2.0):
    return connection.send("GET", "/collections", timeout_seconds=seconds)


def test_state_changes_from_connecting_to_ready(connection: Connection):
    """The first call connects."""
    assert connection.state == "connecting"
    assert list_collections(connection) == []
    assert (connection.state, connection.last_error) == ("ready", None)


def test_batch_limit_comes_from_the_server(connection: Connection):
    """It differs between Chroma servers."""
    assert connection.limits().max_batch_size > 1_000


def test_child_killed_between_two_calls_does_not_fail_the_second(connection: Connection, server: ChildServer):
    """A failed call reconnects and retries once."""
    list_collections(connection)
    server._child.kill()
    server._child.wait()
    assert list_collections(connection, seconds=10) == []


def test_calls_to_a_dead_port_fail_fast_during_the_backoff():
    """After the first failure there are no further attempts for a while."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = url(listener)
    connection = Connection(RemoteServer(dead), backoff_seconds=60)
    with pytest.raises(ChromaConnectionLost):
        list_collections(connection)
    assert connection.state == "unavailable"
    assert connection.backoff_seconds > 50
    started = time.monotonic()
    for _ in range(100):
        with pytest.raises(ChromaConnectionLost):
            list_collections(connection)
    assert time.monotonic() - started < 0.1
    assert connection.backoff_seconds < 60


def test_call_to_a_hanging_port_ends_within_its_time_limit(hanging_port: socket.socket):
    """No call takes longer than requested."""
    connection = Connection(RemoteServer(url(hanging_port)))
    started = time.monotonic()
    with pytest.raises(TimedOut):
        list_collections(connection, seconds=0.3)
    assert time.monotonic() - started < 1
    connection.close()


def test_concurrent_callers_share_one_connection_attempt(hanging_port: socket.socket):
    """Sixteen searches with a dead server make one attempt."""
    connection = Connection(RemoteServer(url(hanging_port)))
    with ThreadPoolExecutor(16) as threads:
        failures = list(threads.map(lambda _: failure_of(connection), range(16)))
    assert all(isinstance(failure, TimedOut) for failure in failures)
    assert accepted(hanging_port) == 1
    connection.close()


def accepted(listener: socket.socket) -> int:
    """Return how many connections wait in the listener's queue."""
    listener.settimeout(0.2)
    callers = []
    with suppress(TimeoutError):
        while True:
            callers.append(listener.accept()[0])
    for caller in callers:
        caller.close()
    return len(callers)


def failure_of(connection: Connection) -> VectorsUnavailable | None:
    try:
        list_collections(connection, seconds=0.4)
    except VectorsUnavailable as failure:
        return failure
    return None


def test_server_that_comes_back_is_used_after_the_backoff(tmp_path):
    """Nothing needs to be restarted."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = url(listener)
    connection = Connection(RemoteServer(address), backoff_seconds=0.05)
    with pytest.raises(ChromaConnectionLost):
        list_collections(connection)
    server = ChildServer(tmp_path / "chroma")
    server.address()
    connection._server = RemoteServer(server.address())
    time.sleep(connection.backoff_seconds)
    assert list_collections(connection) == []
    connection.close()
    server.close()


class NotChroma(BaseHTTPRequestHandler):
    """Some other web server."""

    def do_GET(self) -> None:
        body = b"<html>hello</html>"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def test_another_web_server_is_not_mistaken_for_chroma():
    """The error says that the URL is wrong."""
    with HTTPServer(("127.0.0.1", 0), NotChroma) as other:
        thread = threading.Thread(target=other.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        connection = Connection(RemoteServer(f"http://127.0.0.1:{other.server_port}"))
        with pytest.raises(ChromaConnectionLost, match="not Chroma"):
            list_collections(connection)
        connection.close()
        other.shutdown()
        thread.join()


def test_server_whose_folder_was_deleted_is_restarted(connection: Connection, tmp_path):
    """The child that lost its files is restarted, and the call succeeds."""
    list_collections(connection)
    shutil.rmtree(tmp_path / "data" / "chroma")
    body = {"name": "cm__x", "get_or_create": True}
    assert connection.send("POST", "/collections", body=body, timeout_seconds=10)["name"] == "cm__x"
