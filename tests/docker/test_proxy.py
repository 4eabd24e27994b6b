"""The real proxy in front of replicas: bodies up to the limit, and a replica that dies."""

import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.docker import FOLDER
from tests.serving import Started, serving

pytestmark = pytest.mark.process

CADDY = Path(sys.executable).with_name("caddy")
REQUESTS = 10
NOTICED_AFTER_SECONDS = 1.0
"""Until the proxy sees that idle connections are closed. It does not retry a POST that it sent over one of them."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def adapted(folder: Path, port: int, replicas: list[Started]) -> dict[str, Any]:
    """Return the Caddyfile as JSON, with these replicas in place of a name to resolve."""
    command = [CADDY, "adapt", "--adapter", "caddyfile", "--config", FOLDER / "Caddyfile"]
    given = {"HOME": str(folder), "CMEM_SITE": f"http://127.0.0.1:{port}"}
    config = json.loads(subprocess.run(command, env=given, capture_output=True, check=True).stdout)
    (server,) = config["apps"]["http"]["servers"].values()
    text = json.dumps(server)
    named = json.dumps({"name": "server", "port": "37877", "refresh": 2_000_000_000, "source": "a"})
    there = json.dumps([{"dial": replica.url.removeprefix("http://")} for replica in replicas])
    assert text.count(f'"dynamic_upstreams": {named}') == 1
    server.update(json.loads(text.replace(f'"dynamic_upstreams": {named}', f'"upstreams": {there}')))
    return {**config, "admin": {"disabled": True}}


@contextmanager
def proxied(folder: Path, replicas: list[Started]) -> Iterator[str]:
    """Yield the URL of a proxy in front of these replicas."""
    port = free_port()
    config = folder / "caddy.json"
    config.write_text(json.dumps(adapted(folder, port, replicas)))
    with subprocess.Popen(
        [CADDY, "run", "--config", config], env={"HOME": str(folder)}, stderr=subprocess.DEVNULL
    ) as proxy:
        try:
            wait_for(port)
            yield f"http://127.0.0.1:{port}"
        finally:
            proxy.terminate()


def wait_for(port: int) -> None:
    give_up_at = time.monotonic() + 20
    while time.monotonic() < give_up_at:
        with socket.socket() as trial:
            if trial.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    raise AssertionError("the proxy did not start")


def test_the_proxy_accepts_what_the_server_accepts_and_skips_a_dead_replica(tmp_path: Path):
    """The server's own limit applies to bodies; after a kill -9 no request is lost or executed twice."""
    with (
        serving(tmp_path / "data") as first,
        serving(tmp_path / "data") as second,
        proxied(tmp_path, [first, second]) as url,
        httpx.Client(
            base_url=url, headers={"Authorization": f"Bearer {first.exported['KEY']}"}, trust_env=False
        ) as http,
    ):
        fact = {"projectId": first.exported["PROJECT"], "content": "a fact"}
        large = http.post("/v1/memories", json={**fact, "metadata": {"m": "x" * 5_000_000}})
        too_large = http.post("/v1/memories", json={**fact, "metadata": {"m": "x" * 5_300_000}})
        second.process.kill()
        second.process.wait()
        time.sleep(NOTICED_AFTER_SECONDS)
        written = [http.post("/v1/memories", json={**fact, "content": f"fact {n}"}) for n in range(REQUESTS)]
        read = [http.get("/v1/memories") for _ in range(REQUESTS)]

    assert (large.status_code, too_large.status_code, too_large.json()["error"]) == (201, 413, "PayloadTooLarge")
    assert [reply.status_code for reply in written] == [201] * REQUESTS
    assert [reply.status_code for reply in read] == [200] * REQUESTS
    assert len(read[-1].json()["memories"]) == REQUESTS + 1
