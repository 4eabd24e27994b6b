"""/v1/search: filters before the limit, pages, explanations, and replies without the vector index."""

import socket
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import Server, Tenant, make_tenant

DAY_MS = 86_400_000
NEAR, FARTHER = 2_000, 25


def remember(tenant: Tenant, rows: list[dict[str, Any]]) -> None:
    bodies = [{"projectId": tenant.project_id, **row} for row in rows]
    for start in range(0, len(bodies), 500):
        tenant.http.post("/v1/memories/batch", json=bodies[start : start + 500]).raise_for_status()


def search(tenant: Tenant, query: str | None = None, **options: Any) -> dict[str, Any]:
    body = {"projectId": tenant.project_id, **options}
    reply = tenant.http.post("/v1/search", json=body if query is None else {**body, "query": query})
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def contents(answer: dict[str, Any]) -> list[str]:
    return [memory["content"] for memory in answer["memories"]]


@pytest.fixture(scope="module")
def crowd(server: Server) -> Iterator[Tenant]:
    """2,000 memories that match well, and 25 that hold one word of the query among many others."""
    tenant = make_tenant(server, "crowd")
    near = [{"content": f"copper gasket {n}", "type": "bugfix", "createdAtEpoch": n} for n in range(NEAR)]
    padding = "among many other things that were said that day about pumps and valves"
    farther = [
        {
            "content": f"a gasket {padding} {n}",
            "type": "decision",
            "createdAtEpoch": 100 * DAY_MS + n,
            "filesModified": [f"src/pumps/valve_{n}.py"],
            "concepts": ["minority"],
        }
        for n in range(FARTHER)
    ]
    remember(tenant, near + farther)
    yield tenant
    tenant.http.close()


@pytest.mark.parametrize(
    "filters",
    [
        {"types": ["decision"]},
        {"concepts": ["minority"]},
        {"createdAfter": 100 * DAY_MS, "createdBefore": 101 * DAY_MS},
        {"files": ["src/pumps"]},
        {"files": [f"src/pumps/valve_{n}.py" for n in range(FARTHER)]},
        {"types": ["decision"], "files": ["src"], "createdAfter": 1},
    ],
    ids=lambda filters: "-".join(filters),
)
def test_a_filter_fills_the_page(crowd: Tenant, filters: dict[str, Any]):
    """Rows that 2,000 better matches would crowd out are found if the filter asks for them."""
    answer = search(crowd, "copper gasket", limit=20, **filters)
    assert [memory["type"] for memory in answer["memories"]] == ["decision"] * 20
    rest = search(crowd, "copper gasket", limit=20, cursor=answer["nextCursor"], **filters)
    assert (len(rest["memories"]), rest["nextCursor"]) == (FARTHER - 20, None)


def test_a_small_project_is_not_crowded_out_by_a_large_one(crowd: Tenant):
    """Searched together, the small one's rows are found; searched alone, they fill the page."""
    project = crowd.http.post("/v1/projects", json={"name": "small"}).json()["project"]["id"]
    bodies = [{"projectId": project, "content": f"gasket of the small project {n}"} for n in range(20)]
    crowd.http.post("/v1/memories/batch", json=bodies).raise_for_status()
    alone = crowd.http.post("/v1/search", json={"projectId": project, "query": "copper gasket", "limit": 20}).json()
    both = {"projectIds": [crowd.project_id, project], "query": "small gasket", "limit": 20}
    together = crowd.http.post("/v1/search", json=both).json()
    assert {memory["projectId"] for memory in alone["memories"]} == {project}
    assert len(alone["memories"]) == 20
    assert {memory["projectId"] for memory in together["memories"]} == {project}


def test_a_file_filter_is_a_path_or_a_folder(team: Tenant):
    """`src/pay` is not a parent folder of `src/payments/a.py`."""
    remember(team, [{"content": "gasket one", "filesRead": ["src/payments/a.py"]}, {"content": "gasket two"}])
    assert contents(search(team, "gasket", files=["src/payments/a.py"])) == ["gasket one"]
    assert contents(search(team, "gasket", files=["src/payments/"])) == ["gasket one"]
    assert contents(search(team, "gasket", files=["src/pay"])) == []


def test_a_time_window_is_half_open(team: Tenant):
    """createdAfter is inclusive, createdBefore exclusive."""
    remember(team, [{"content": f"gasket {n}", "createdAtEpoch": n} for n in (10, 20, 30)])
    assert contents(search(team, "gasket", createdAfter=10, createdBefore=20)) == ["gasket 10"]


def test_a_filter_alone_lists_the_newest_first(crowd: Tenant):
    """Without a query there is nothing to rank by."""
    answer = search(crowd, types=["decision"], limit=2)
    assert [memory["createdAtEpoch"] - 100 * DAY_MS for memory in answer["memories"]] == [24, 23]
    assert answer["search"]["strategy"] == "filter_only"


def test_a_search_can_be_paged_a_thousand_deep(crowd: Tenant):
    """Page by page, every row once."""
    seen: list[str] = []
    cursor: str | None = None
    while len(seen) < 1_000:
        answer = search(crowd, "copper gasket", limit=100, **({"cursor": cursor} if cursor else {}))
        seen += [memory["id"] for memory in answer["memories"]]
        cursor = answer["nextCursor"]
        assert cursor is not None or len(seen) >= 1_000
    assert len(set(seen)) == len(seen)


def test_a_cursor_of_another_query_is_refused(crowd: Tenant):
    """It is valid for its own query and filters."""
    cursor = search(crowd, "copper gasket", limit=2)["nextCursor"]
    for changed in ({"query": "gasket"}, {"query": "copper gasket", "types": ["bugfix"]}):
        reply = crowd.http.post("/v1/search", json={"projectId": crowd.project_id, "cursor": cursor, **changed})
        assert (reply.status_code, reply.json()["error"]) == (400, "ValidationError")


def test_explain_shows_how_each_retriever_ranked_a_hit(team: Tenant):
    """Rank, score and weight; without explain nothing of it is sent."""
    remember(team, [{"content": "copper gasket"}, {"content": "gasket"}])
    first = search(team, "copper gasket", explain=True)["memories"][0]
    assert first["matchedBy"] == ["keyword"]
    assert [(share["leg"], share["rank"], share["weight"]) for share in first["explain"]] == [("keyword", 1, 1.0)]
    assert search(team, "copper gasket")["memories"][0]["explain"] is None


def test_a_two_year_old_answer_comes_first(team: Tenant):
    """Age only decides between equal matches."""
    now = 1_780_000_000_000
    remember(team, [{"content": "the copper gasket was ordered from Bergen", "createdAtEpoch": now - 730 * DAY_MS}])
    remember(team, [{"content": f"a gasket {n}", "createdAtEpoch": now} for n in range(30)])
    assert contents(search(team, "where was the copper gasket ordered?"))[0].endswith("from Bergen")


def test_equal_answers_come_newest_first(team: Tenant):
    """This is the only effect of recency."""
    remember(team, [{"content": f"copper gasket {n}", "createdAtEpoch": n * DAY_MS} for n in range(3)])
    assert contents(search(team, "copper gasket")) == ["copper gasket 2", "copper gasket 1", "copper gasket 0"]


@pytest.fixture
def hanging_url() -> Iterator[str]:
    """The URL of a port that accepts connections and never answers."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


def search_without_index(start_server: Callable[..., Server], **settings: object) -> dict[str, Any]:
    """Search a server for words of one memory; it must answer within three seconds."""
    tenant = make_tenant(start_server(**settings), "alone")
    remember(tenant, [{"content": "signing keys rotate weekly"}])
    started = time.monotonic()
    answer = search(tenant, "signing keys")
    assert time.monotonic() - started < 3
    assert contents(answer) == ["signing keys rotate weekly"]
    tenant.http.close()
    return answer


def test_an_unreachable_index_is_reported(start_server):
    """Words are searched, and the reply says why only words."""
    report = search_without_index(start_server, vectors="http", chroma_url="http://127.0.0.1:9")["search"]
    assert (report["strategy"], report["degraded"], report["chromaAvailable"]) == ("fts", True, False)
    assert (report["fallbackReason"], report["notice"] is None) == ("chroma_connection", False)


def test_a_hanging_index_is_reported(start_server, hanging_url):
    """Words are searched in time; the reason is one of two while the first connection attempt is still running."""
    report = search_without_index(start_server, vectors="http", chroma_url=hanging_url)["search"]
    assert (report["strategy"], report["degraded"], report["chromaAvailable"]) == ("fts", True, False)
    assert report["fallbackReason"] in ("chroma_timeout", "chroma_not_initialized")


def test_a_server_without_vectors_is_not_degraded(start_server):
    """It was configured that way."""
    report = search_without_index(start_server, vectors="off")["search"]
    assert (report["strategy"], report["degraded"], report["fallbackReason"], report["notice"]) == (
        "fts",
        False,
        None,
        None,
    )


def test_a_paraphrase_is_found_by_a_server_with_vectors(start_server):
    """The default server searches by meaning, and each retriever explains itself."""
    tenant = make_tenant(start_server(vectors="embedded"), "hybrid")
    remember(
        tenant, [{"content": "We baked an apple cake for the birthday"}, {"content": "Signing keys rotate weekly"}]
    )
    deadline = time.monotonic() + 30
    while not (found := search(tenant, "dessert at a party", explain=True))["memories"]:
        assert time.monotonic() < deadline, found
        time.sleep(0.05)
    tenant.http.close()
    (cake,) = found["memories"]
    assert (cake["content"], cake["matchedBy"]) == ("We baked an apple cake for the birthday", ["semantic"])
    assert [(share["leg"], share["rank"]) for share in cake["explain"]] == [("semantic", 1)]
    assert found["search"]["strategy"] == "hybrid"
