"""A whole team, or a whole project, is gone from the disk: from every file of the data folder, the vectors' too."""

import json
import sqlite3
import subprocess
import time
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.services.operations.test_maintenance import holding
from tests.serving import ROOT, Started, serve_command, serving

pytestmark = pytest.mark.process

MARKERS = ["xylophonemarkerword", "蝾螈标记"]
TEXT = " ".join(MARKERS)
SECONDS = 60.0


def fill(http: httpx.Client, project: dict[str, Any]) -> None:
    """Write the markers wherever a project keeps text."""

    def post(path: str, body: Any) -> dict[str, Any]:
        reply = http.post(path, json=body, headers={"Idempotency-Key": path})
        assert reply.is_success, reply.text
        return reply.json()

    where = {"projectId": project["id"], "metadata": {TEXT: TEXT}, "platformSource": MARKERS[0]}
    session = post("/v1/sessions/start", {**where, "externalSessionId": TEXT, "title": TEXT, "agentId": TEXT})
    session_id = session["session"]["id"]
    event = {"sourceType": MARKERS[0], "eventType": TEXT, "occurredAtEpoch": 1, "payload": {TEXT: TEXT}}
    post("/v1/events", {**where, **event, "serverSessionId": session_id, "sourceEventId": TEXT})
    lists = {name: [TEXT, *MARKERS] for name in ("facts", "concepts", "filesRead", "filesModified")}
    texts = dict.fromkeys(("title", "subtitle", "text", "narrative", "type"), TEXT)
    post("/v1/memories", {**where, **texts, **lists, "serverSessionId": session_id})
    post("/v1/memories/batch", [{**where, "content": f"{TEXT} {number}"} for number in range(30)])
    said = [{"role": "user", "content": f"What is {TEXT}?"}, {"role": "assistant", "content": f"It is {TEXT}."}]
    post("/v1/conversations", {"projectId": project["id"], "messages": said, "tags": [MARKERS[0]]})
    post("/v1/search", {"projectId": project["id"], "query": TEXT})
    rules = {"rules": [{"expireWhen": MARKERS, "afterDays": 30}]}
    http.put(f"/v1/projects/{project['id']}/retention", json=rules).raise_for_status()
    http.patch(f"/v1/projects/{project['id']}", json={"metadata": {"about": TEXT}}).raise_for_status()


def mirrored(folder: Path) -> None:
    """Wait until the index has followed, also what is no project's any more."""
    deadline = time.monotonic() + SECONDS
    with closing(sqlite3.connect(folder / "cmem.db")) as connection:
        while connection.execute("SELECT count(*) FROM vector_outbox").fetchone()[0]:
            assert time.monotonic() < deadline
            time.sleep(0.1)


def command(folder: Path, *arguments: str) -> dict[str, Any]:
    line, environment = serve_command(folder)
    line = [*line[: line.index("serve")], *arguments, "--json"]
    environment["CMEM_VECTORS"] = "embedded"
    done = subprocess.run(line, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(done.stdout)


def client(server: Started, key: str) -> httpx.Client:
    return httpx.Client(
        base_url=server.url, headers={"Authorization": f"Bearer {key}"}, trust_env=False, timeout=SECONDS
    )


@pytest.mark.timeout(240)
@pytest.mark.parametrize("what", ["team", "project"])
def test_nothing_of_it_is_in_any_file_after_maintenance(tmp_path: Path, what: str):
    """Whatever field it was in; the remaining team has lost nothing."""
    with serving(tmp_path, CMEM_VECTORS="embedded") as server:
        team_id = command(tmp_path, "teams", "create", TEXT if what == "team" else "leaving")["id"]
        key = command(tmp_path, "keys", "create", "--team", team_id, "--scope", "*")["apiKey"]
        with client(server, key) as http, client(server, server.exported["KEY"]) as staying:
            kept = {"projectId": server.exported["PROJECT"], "content": "The gateway waits three seconds."}
            staying.post("/v1/memories", json=kept).raise_for_status()
            named = {"name": TEXT, "slug": MARKERS[0], "rootPath": f"/{TEXT}", "metadata": {TEXT: TEXT}}
            project = http.post("/v1/projects", json=named).json()["project"]
            fill(http, project)
            mirrored(tmp_path)
            assert all(holding(tmp_path, marker) for marker in MARKERS)

            path = f"/v1/teams/{team_id}" if what == "team" else f"/v1/projects/{project['id']}"
            http.delete(path).raise_for_status()
            mirrored(tmp_path)
            server.process.terminate()
            server.process.wait(timeout=30)

    assert command(tmp_path, "maintenance", "run")["logEmptied"] is True

    assert [holding(tmp_path, marker) for marker in MARKERS] == [[], []]
    assert command(tmp_path, "doctor")["ok"] is True
    with serving(tmp_path) as again, client(again, server.exported["KEY"]) as staying:
        assert [one["content"] for one in staying.get("/v1/memories").json()["memories"]] == [kept["content"]]
