"""How a server stops: within ten seconds, also with open streams, and without losing anything."""

import http.client
import signal
import time
from collections.abc import Iterator
from contextlib import closing
from urllib.parse import urlsplit

import httpx
import pytest

from app.services.operations import fulltext_check
from tests.serving import Home, Started

GRACE_SECONDS = 10
pytestmark = pytest.mark.process


@pytest.fixture
def idle(home: Home) -> Iterator[Started]:
    """A server without data."""
    with home.serving() as server:
        yield server


@pytest.fixture
def started(home: Home) -> Iterator[Started]:
    """A server with an export of 20 MB, which no socket buffers completely."""
    with home.serving() as server:
        with httpx.Client(base_url=server.url, headers=bearer(server), trust_env=False, timeout=60) as client:
            for number in range(10):
                content = " ".join(f"word{each}" for each in range(number, 30_000))
                batch = [{"projectId": server.exported["PROJECT"], "content": f"{each} {content}"} for each in range(7)]
                client.post("/v1/memories/batch", json=batch).raise_for_status()
        yield server


def bearer(server: Started) -> dict[str, str]:
    return {"Authorization": f"Bearer {server.exported['KEY']}"}


def path(server: Started, verb: str) -> str:
    return f"/v1/projects/{server.exported['PROJECT']}/{verb}"


def stop(server: Started) -> float:
    """Stop the server; return how many seconds that took."""
    began = time.monotonic()
    server.process.send_signal(signal.SIGTERM)
    server.process.wait(timeout=30)
    return time.monotonic() - began


def test_it_stops_in_time_with_an_export_and_an_import_open(started: Started, home: Home):
    """One client stops reading, another stops sending. Memories that are not embedded yet remain queued."""
    netloc = urlsplit(started.url).netloc
    with (
        closing(http.client.HTTPConnection(netloc, timeout=30)) as reading,
        closing(http.client.HTTPConnection(netloc, timeout=30)) as sending,
    ):
        reading.request("GET", path(started, "export"), headers=bearer(started))
        reply = reading.getresponse()
        assert reply.read(10)
        sending.putrequest("POST", path(started, "import"))
        for name, value in {
            **bearer(started),
            "Content-Type": "application/x-ndjson",
            "Transfer-Encoding": "chunked",
        }.items():
            sending.putheader(name, value)
        sending.endheaders()
        sending.send(b"2\r\n{}\r\n")

        assert stop(started) < GRACE_SECONDS
        reply.close()

    with home.database() as database:
        assert fulltext_check.faults(database) == []
        with database.read() as connection:
            assert connection.exec_driver_sql("SELECT count(*) FROM vector_outbox").scalar_one() == 70
            assert connection.exec_driver_sql("SELECT last_used_at_epoch FROM api_keys").scalar_one() is not None


def test_an_idle_server_stops_at_once(idle: Started):
    """There is nothing to wait for."""
    assert stop(idle) < GRACE_SECONDS / 2
    assert idle.process.returncode in (0, -signal.SIGTERM)
