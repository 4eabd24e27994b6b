"""An acknowledged write survives `kill -9`, once."""

import os
import signal
from collections import Counter
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.serving import Home, Started

WRITES = 2_000 if os.environ.get("CMEM_STRESS") else 300
WRITERS = 16
pytestmark = pytest.mark.process


def write_until_killed(started: Started, kill_after: int) -> list[str]:
    """Write over many connections, kill the server meanwhile, and return what was acknowledged."""
    acknowledged: list[str] = []
    headers = {"Authorization": f"Bearer {started.exported['KEY']}"}

    def write(first: int) -> None:
        with httpx.Client(base_url=started.url, headers=headers, trust_env=False, timeout=30) as http:
            for number in range(first, WRITES, WRITERS):
                body = {"projectId": started.exported["PROJECT"], "content": f"acknowledged {number}"}
                try:
                    reply = http.post("/v1/memories", json=body)
                except httpx.TransportError:
                    return
                if reply.status_code == 201:
                    acknowledged.append(body["content"])
                if len(acknowledged) == kill_after:
                    os.kill(started.process.pid, signal.SIGKILL)

    with ThreadPoolExecutor(WRITERS) as pool:
        list(pool.map(write, range(WRITERS)))
    return acknowledged


def stored(started: Started, key: str) -> Counter[str]:
    found: Counter[str] = Counter()
    cursor: str | None = ""
    with httpx.Client(base_url=started.url, headers={"Authorization": f"Bearer {key}"}, trust_env=False) as http:
        while cursor is not None:
            page = http.get("/v1/memories", params={"limit": 200, **({"cursor": cursor} if cursor else {})}).json()
            found.update(memory["content"] for memory in page["memories"])
            cursor = page["nextCursor"]
    return found


@pytest.mark.parametrize("share", [0.3, 0.9] if os.environ.get("CMEM_STRESS") else [0.5])
def test_every_acknowledged_write_is_stored_once_after_a_kill(home: Home, share: float):
    """Nothing that was answered with 201 is lost or doubled, and `db check` finds nothing wrong."""
    with home.serving() as started:
        acknowledged = write_until_killed(started, round(WRITES * share))
        key = started.exported["KEY"]

    with home.serving() as again:
        found = stored(again, key)

    assert len(acknowledged) >= round(WRITES * share)
    assert [text for text in acknowledged if found[text] != 1] == []
    assert [text for text, times in found.items() if times != 1] == []
    checked = home.run("db", "check")
    assert (checked.returncode, checked.stdout) == (0, "the database is intact\n")
