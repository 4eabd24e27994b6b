"""The proxy before the replicas, with the real program: bodies up to the limit, and a replica that dies."""

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

from tests.docker import FOLDER
from tests.serving import Started, serving

CADDY = Path(sys.executable).with_name("caddy")
REQUESTS = 10
NOTICED_AFTER_SECONDS = 1.0
"""For the proxy to see that idle connections have ended. A POST that went out on one in between is not sent again."""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def adapted(folder: Path, port: int, replicas: list[Started]) -> dict[str, Any]:
    """The Caddyfile as Caddy reads it, with these replicas for those that a name would give."""
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
    """The address of a proxy before these replicas."""
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


def test_the_proxy_takes_what_the_server_takes_and_passes_over_a_dead_replica(tmp_path: Path):
    """Bodies meet the server's own limit; of requests after a kill -9 none is lost and none is done twice."""
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
