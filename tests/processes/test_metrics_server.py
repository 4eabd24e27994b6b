"""CMEM_METRICS_PORT: a scraper inside the network needs no key, and the port closes with the server."""

import errno
import os
import socket
import subprocess
import time
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from tests.serving import ROOT, serve_command, serving

GRACE_SECONDS = 10
pytestmark = pytest.mark.process


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as probe:
        return probe.getsockname()[1]


def test_it_serves_the_metrics_without_a_key(tmp_path: Path):
    """The same metrics as the route, which still needs a key."""
    port = free_port()
    with serving(tmp_path, CMEM_METRICS_PORT=str(port)) as server:
        scraped = httpx.get(f"http://127.0.0.1:{port}/metrics", trust_env=False)
        assert httpx.get(f"{server.url}/metrics", trust_env=False).status_code == 401
        key = {"Authorization": f"Bearer {server.exported['KEY']}"}
        assert httpx.get(f"{server.url}/metrics", headers=key, trust_env=False).status_code == 403

    assert (scraped.status_code, scraped.headers["content-type"].split(";")[0]) == (200, "text/plain")
    assert "cmem_requests_total{" in scraped.text
    assert "cmem_database_bytes " in scraped.text


def test_it_closes_with_the_server_while_a_scraper_is_connected(tmp_path: Path):
    """A silent scraper does not delay the server."""
    port = free_port()
    with (
        serving(tmp_path, CMEM_METRICS_PORT=str(port)) as server,
        closing(socket.create_connection(("127.0.0.1", port))),
    ):
        began = time.monotonic()
        server.process.terminate()
        server.process.wait(timeout=30)
        took = time.monotonic() - began

    assert took < GRACE_SECONDS / 2
    socket.create_server(("127.0.0.1", port)).close()


def test_a_port_in_use_is_one_clear_line(tmp_path: Path):
    """The line names the variable, and no key was created that nobody saw."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        command, environment = serve_command(tmp_path, "--port", "0")
        environment["CMEM_METRICS_PORT"] = str(port)
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=60)

    assert done.returncode == 1
    assert done.stderr == (
        f"Error: Cannot listen on 127.0.0.1:{port} (CMEM_METRICS_PORT): {os.strerror(errno.EADDRINUSE)}\n"
    )
    assert "KEY=" not in done.stdout
