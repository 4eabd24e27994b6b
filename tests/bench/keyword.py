"""Keyword search over HTTP: large and small projects, common and rare words, alongside other projects."""

import json
import tempfile
from collections.abc import Callable
from pathlib import Path

from app.caller import server_owner
from app.services.identity import teams
from app.services.memories import memories
from app.services.projects import projects
from app.services.search.engine import SearchEngine
from app.services.search.query import SearchParams
from app.store.fulltext import sqlite
from tests.bench import api, load, texts
from tests.bench.harness import Row, Running, Store, serving

_CONNECTIONS = 16
_OTHER_PROJECTS = 100


def run(scale: float) -> list[Row]:
    """Measure at `scale`; the targets are stated for 1.0."""
    with tempfile.TemporaryDirectory() as folder:
        small = api.filled(Path(folder) / "small", max(50, int(2_000 * scale)))
        large = api.filled(Path(folder) / "large", max(100, int(100_000 * scale)))
        rows = _sizes(small, large, scale)
        rows += with_other_projects(small, scale)
    return rows


def searches(store: Store) -> list[bytes]:
    """Return the fixed mix of searches as requests."""
    return [search(store, query) for query in texts.queries()]


def search(store: Store, query: str) -> bytes:
    """Return a keyword search of the store's project as a request."""
    body = {"projectId": store.project_id, "query": query, "mode": "keyword"}
    return load.request("POST", "/v1/search", key=store.api_key, body=json.dumps(body).encode())


def _sizes(small: Store, large: Store, scale: float) -> list[Row]:
    requests = max(40, int(2_000 * scale))
    with serving(small.folder) as server:
        few = _measured(server, small, requests, _CONNECTIONS)
        few_alone = _measured(server, small, requests // 2, 1)
    with serving(large.folder) as server:
        many = _measured(server, large, requests, _CONNECTIONS)
        many_alone = _measured(server, large, requests // 2, 1)
        crowd = _measured(server, large, requests, 100)
    floor = _in_process(large, requests // 4)
    size = f"{api.count(large):,} rows"
    p95, p95_small = many_alone.percentile_ms(0.95), few_alone.percentile_ms(0.95)
    return [
        Row(f"keyword search at {size}", _rate(many), f"F3 {floor:,.0f}/s", many.per_second / floor, "≥ 0.7"),
        Row("  its p95, one connection", f"{p95:.1f} ms", f"small {p95_small:.1f} ms", p95 / p95_small, "≤ 10"),
        Row(
            "  p95 with 100 connections",
            f"{crowd.percentile_ms(0.95):.0f} ms",
            f"median of 1: {many_alone.percentile_ms(0.5):.1f} ms",
            crowd.percentile_ms(0.95) / many_alone.percentile_ms(0.5),
            "printed",
        ),
        Row("  failed requests", str(many.failures + crowd.failures + few.failures), "0", 0.0, "0"),
    ]


def _measured(server: Running, store: Store, requests: int, connections: int) -> load.Load:
    requests_sent = searches(store)
    load.run(server.url, requests_sent, count=len(requests_sent))
    return load.run(server.url, requests_sent, count=max(requests, 20), connections=connections)


def _rate(result: load.Load) -> str:
    return f"{result.per_second:,.0f}/s"


def _in_process(store: Store, times: int) -> float:
    """Return searches per second without HTTP, in one thread."""
    engine = SearchEngine(sqlite, recency_half_life_days=90)
    searches_sent = [
        SearchParams(project_ids=(store.project_id,), query=query, mode="keyword") for query in texts.queries()
    ]
    source = iter(searches_sent * (times // len(searches_sent) + 2))

    def one() -> None:
        engine.search(store.database, store.caller, next(source))

    load.timed(one, times=len(searches_sent))
    return load.timed(one, times=times)


def with_other_projects(store: Store, scale: float, settle: Callable[[], None] = lambda: None) -> list[Row]:
    """Compare a project alone with the same project alongside a hundred of its size, in another team.

    `settle` does what the database eventually does on its own after many inserts.
    """
    requests = max(40, int(1_000 * scale))
    settle()
    with serving(store.folder, **store.settings) as server:
        alone = _measured(server, store, requests, 1)
        replies = _replies(server, store)
    _add_other_projects(store, scale)
    settle()
    with serving(store.folder, **store.settings) as server:
        crowded = _measured(server, store, requests, 1)
        are_equal = replies == _replies(server, store)
    p50, p50_alone = crowded.percentile_ms(0.5), alone.percentile_ms(0.5)
    return [
        Row(
            f"keyword search alongside {_OTHER_PROJECTS} other projects, p50",
            f"{p50:.2f} ms",
            f"alone {p50_alone:.2f} ms",
            p50 / p50_alone,
            "≤ 1.3",
        ),
        Row("  replies equal", "yes" if are_equal else "NO", "yes", float(are_equal), "1"),
    ]


def _replies(server: Running, store: Store) -> list[list[object]]:
    """Return the hits of each search, without its duration."""
    replies = []
    for each in searches(store):
        (body,) = load.run(server.url, [each], count=1, connections=1, keep_bodies=True).bodies
        replies.append(json.loads(body)["memories"])
    return replies


def _add_other_projects(store: Store, scale: float) -> None:
    with store.database.write() as connection:
        stranger = server_owner().within(teams.create(connection, server_owner(), name="stranger").id)
    for number in range(_OTHER_PROJECTS):
        with store.database.write() as connection:
            project = projects.create(connection, stranger, name=f"p{number}")
            for item in texts.memories(max(20, int(2_000 * scale)), seed=100 + number):
                memories.insert_once(connection, stranger, memories.NewMemory(project_id=project.id, **item))
