"""Daily maintenance of a server with an embedded vector index."""

import sqlite3
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from app import main
from tests.conftest import Server, Tenant, make_tenant

SECONDS = 60.0


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition() and time.monotonic() < deadline:
        time.sleep(0.05)
    assert condition()


def backlog(team: Tenant) -> list[int]:
    return [one["pending"] for one in team.http.get("/v1/vectors/status").json()["projects"]]


def chroma_maintenance_log(folder: Path) -> list[str]:
    """Return Chroma's own log of its maintenance."""
    with closing(sqlite3.connect(folder / "chroma" / "chroma.sqlite3")) as connection:
        return [operation for (operation,) in connection.execute("SELECT operation FROM maintenance_log")]


def vacuums(server: Server) -> list[str]:
    with server.database.read() as connection:
        sql = "SELECT status FROM operations WHERE kind = 'vectors.vacuum'"
        return list(connection.exec_driver_sql(sql).scalars())


@pytest.mark.timeout(180)
def test_index_is_vacuumed_once_a_day(
    start_server: Callable[..., Server], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    """Meanwhile searches match words only, and meaning again afterwards."""
    monkeypatch.setattr(main, "DAILY_CHECK_INTERVAL_SECONDS", 0.2)
    server = start_server(vectors="embedded")
    team = make_tenant(server, "a")
    with team.http as http:
        ids = [team.post_memory(content=f"Bread is baked on day {day}.").json()["memory"]["id"] for day in range(20)]
        wait_for(lambda: backlog(team) == [0])
        for memory_id in ids[1:]:
            http.delete(f"/v1/memories/{memory_id}").raise_for_status()
        wait_for(lambda: backlog(team) == [0])
        assert chroma_maintenance_log(tmp_path) == []

        with server.database.write() as connection:
            connection.exec_driver_sql("UPDATE teams SET created_at_epoch = created_at_epoch - 2 * 86400000")
        query = {"projectId": team.project_id, "query": "bread"}
        while vacuums(server) != ["done"]:
            reply = http.post("/v1/search", json=query)
            assert (reply.status_code, [one["id"] for one in reply.json()["memories"]]) == (200, ids[:1])
            time.sleep(0.1)

        assert chroma_maintenance_log(tmp_path) == ["vacuum"]
        wait_for(lambda: http.post("/v1/search", json=query).json()["search"]["degraded"] is False)
        time.sleep(1)
        assert vacuums(server) == ["done"]
