"""What was acknowledged survives the worst end of the process."""

import json
import subprocess
import sys
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx

from tests.serving import ROOT, Started, serve_command, serving

CONNECTIONS = 16
KILLED_AFTER = 1_000


def write_until_it_dies(server: Started) -> list[str]:
    """Write from many connections, kill the server in the midst of it, and return the texts that were acknowledged."""
    headers = {"Authorization": f"Bearer {server.exported['KEY']}"}
    acknowledged: list[str] = []
    enough = threading.Event()

    def write(connection: int) -> None:
        with httpx.Client(base_url=server.url, headers=headers, trust_env=False, timeout=30) as http:
            for number in range(100 * KILLED_AFTER):
                content = f"fact {connection}-{number}"
                try:
                    reply = http.post(
                        "/v1/memories", json={"projectId": server.exported["PROJECT"], "content": content}
                    )
                except httpx.TransportError:
                    return
                assert reply.status_code == 201
                acknowledged.append(content)
                if len(acknowledged) >= KILLED_AFTER:
                    enough.set()

    with ThreadPoolExecutor(CONNECTIONS) as pool:
        writers = [pool.submit(write, connection) for connection in range(CONNECTIONS)]
        enough.wait(timeout=120)
        server.process.kill()
        for writer in writers:
            writer.result()
    return acknowledged


def everything(server: Started, api_key: str) -> list[str]:
    """The texts of all memories, page by page."""
    contents, query = [], {"limit": "200"}
    with httpx.Client(base_url=server.url, headers={"X-Api-Key": api_key}, trust_env=False, timeout=30) as http:
        while True:
            page = http.get("/v1/memories", params=query).json()
            contents += [memory["content"] for memory in page["memories"]]
            if page["nextCursor"] is None:
                return contents
            query["cursor"] = page["nextCursor"]


def test_every_acknowledged_write_survives_kill_9_once(tmp_path):
    """After a kill among concurrent writes, each acknowledged one is there, none twice, and the database is whole."""
    with serving(tmp_path) as first:
        acknowledged = write_until_it_dies(first)
    with serving(tmp_path) as second:
        found = Counter(everything(second, first.exported["KEY"]))
    _, environment = serve_command(tmp_path)
    check = [sys.executable, "-m", "app", "db", "check", "--json"]
    checked = subprocess.run(check, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)

    assert len(acknowledged) >= KILLED_AFTER
    assert set(acknowledged) - found.keys() == set()
    assert [content for content, times in found.items() if times > 1] == []
    assert json.loads(checked.stdout) == {"ok": True, "faults": []}
