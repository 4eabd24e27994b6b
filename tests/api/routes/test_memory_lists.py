"""GET /v1/memories and /v1/memories/by-file: pages, filters and order."""

import base64
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.conftest import Tenant, client, make_key
from tests.problems import code_of

AsTeam = Callable[[str], Tenant]
DAY = 86_400_000


def post(team: Tenant, *items: dict[str, Any]) -> None:
    body = [{"projectId": team.project_id, **item} for item in items]
    assert team.http.post("/v1/memories/batch", json=body).status_code == 201


def listed(team: Tenant, **query: Any) -> list[str]:
    """Return the texts of a list's first page."""
    reply = team.http.get("/v1/memories", params=query)
    assert reply.status_code == 200, reply.text
    return [memory["narrative"] for memory in reply.json()["memories"]]


def pages(team: Tenant, route: str = "/v1/memories", **query: Any) -> Iterator[dict[str, Any]]:
    """Yield page after page."""
    cursor: str | None = ""
    while cursor is not None:
        reply = team.http.get(route, params={**query, **({"cursor": cursor} if cursor else {})})
        assert reply.status_code == 200, reply.text
        yield reply.json()
        cursor = reply.json()["nextCursor"]


def walked(team: Tenant, **query: Any) -> list[str]:
    return [memory["narrative"] for page in pages(team, **query) for memory in page["memories"]]


@pytest.mark.parametrize("order", ["newest", "oldest"])
def test_equal_times_are_paged_exactly_once_while_others_write(team: Tenant, order: str):
    """Every row that existed at the start comes once, although rows with the same time are written between pages."""
    post(team, *({"content": f"old {number}", "createdAtEpoch": 1000} for number in range(60)))
    seen: list[str] = []

    for number, page in enumerate(pages(team, limit=7, orderBy=order)):
        seen += [memory["narrative"] for memory in page["memories"]]
        if number < 5:
            post(team, {"content": f"new {number}", "createdAtEpoch": 1000})

    old = [text for text in seen if text.startswith("old")]
    assert sorted(old) == sorted(f"old {number}" for number in range(60))
    assert len(set(seen)) == len(seen)


def test_the_newest_come_first(team: Tenant):
    """Ordered by creation time, and among equal times by order of writing."""
    post(team, *({"content": text, "createdAtEpoch": at} for text, at in [("b", 2), ("c", 3), ("a", 1), ("c2", 3)]))

    assert listed(team) == ["c2", "c", "b", "a"]
    assert listed(team, orderBy="oldest") == ["a", "b", "c", "c2"]


def test_only_the_last_page_has_no_cursor(team: Tenant):
    """`nextCursor` is null exactly if nothing follows."""
    post(team, *({"content": str(number)} for number in range(4)))

    assert [(len(page["memories"]), page["nextCursor"] is None) for page in pages(team, limit=2)] == [
        (2, False),
        (2, True),
    ]


def test_a_page_has_50_rows_by_default(team: Tenant):
    """The default limit is 50, the maximum 200."""
    post(team, *({"content": str(number)} for number in range(201)))

    assert (len(listed(team)), len(listed(team, limit=200)), len(listed(team, limit=1))) == (50, 200, 1)


@pytest.fixture
def varied(team: Tenant) -> Tenant:
    """A team with memories that differ in every filter."""
    session = team.http.post("/v1/sessions/start", json={"projectId": team.project_id, "externalSessionId": "s"})
    at = 1_800_000_000_000
    post(
        team,
        {"content": "a", "kind": "observation", "type": "bugfix", "createdAtEpoch": at, "concepts": ["x", "y"]},
        {"content": "b", "kind": "summary", "platformSource": "codex", "createdAtEpoch": at + DAY, "concepts": ["z"]},
        {"content": "c", "createdAtEpoch": at + 2 * DAY, "filesRead": ["src/pay/a.py"], "filesModified": ["src/x.py"]},
        {"content": "d", "createdAtEpoch": at + 3 * DAY, "serverSessionId": session.json()["session"]["id"]},
        {"content": "e", "createdAtEpoch": at + 4 * DAY, "filesModified": ["src/pay"]},
    )
    return team


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ({"kinds": "observation"}, "a"),
        ({"kinds": ["observation", "summary"]}, "ba"),
        ({"types": "bugfix"}, "a"),
        ({"types": ["bugfix", "summary"]}, "ba"),
        ({"concepts": "y"}, "a"),
        ({"concepts": ["x", "z"]}, "ba"),
        ({"files": "src/pay/a.py"}, "c"),
        ({"files": "src/pay"}, "ec"),
        ({"files": "src/pa"}, ""),
        ({"platformSource": "OpenAI Codex"}, "b"),
        ({"createdAfter": "1800086400000", "createdBefore": "1800259200000"}, "cb"),
        ({"createdAfter": "2027-01-16T08:00:00Z", "createdBefore": "2027-01-18T08:00:00Z"}, "cb"),
        ({"createdAfter": "2027-01-16T17:00:00+09:00", "createdBefore": "2027-01-18T17:00:00+09:00"}, "cb"),
        ({"createdAfter": "1969-12-31T23:00:00Z", "createdBefore": "2027-01-15T08:00:00.001Z"}, "a"),
        ({"createdBefore": "1800000000000"}, ""),
        ({"kinds": "manual", "files": "src"}, "ec"),
        ({"serverSessionId": "nobody's"}, ""),
    ],
)
def test_a_filter_matches_what_it_names(varied: Tenant, query: dict[str, Any], texts: str):
    """Filters are combined with AND, repeats of one key with OR; time ranges are half-open."""
    assert "".join(listed(varied, **query)) == texts


def test_a_session_is_a_filter(varied: Tenant):
    """Only the memories of that session are listed."""
    session = varied.http.get("/v1/sessions").json()["sessions"][0]["id"]

    assert listed(varied, serverSessionId=session) == ["d"]


def test_filters_are_applied_before_the_limit(team: Tenant):
    """A page is full although most rows do not match."""
    post(team, *({"content": f"rare {number}", "kind": "summary"} for number in range(20)))
    post(team, *({"content": f"common {number}"} for number in range(200)))

    assert len(listed(team, kinds="summary", limit=20)) == 20


@pytest.mark.parametrize(
    ("query", "texts"),
    [
        ({"path": "src/pay"}, "ec"),
        ({"path": "src/pay/"}, "ec"),
        ({"path": "src/pay", "isFolder": "true"}, "ec"),
        ({"path": "src/pay", "isFolder": "false"}, "e"),
        ({"path": ["src/x.py", "src/pay"], "isFolder": "false"}, "ec"),
        ({"path": "src/pay/a.py", "isFolder": "false"}, "c"),
        ({"path": "nowhere"}, ""),
    ],
)
def test_memories_of_a_file_are_listed(varied: Tenant, query: dict[str, Any], texts: str):
    """By the exact file, or by a folder with everything below it; several paths are combined with OR."""
    reply = varied.http.get("/v1/memories/by-file", params={"projectId": varied.project_id, **query})

    assert "".join(memory["narrative"] for memory in reply.json()["memories"]) == texts


@pytest.mark.parametrize("query", [{}, {"path": ""}, {"path": ["a", " "]}, {"path": "a", "isFolder": "yes"}])
def test_by_file_requires_a_path(team: Tenant, query: dict[str, Any]):
    """A missing or blank path does not mean every file."""
    assert code_of(team.http.get("/v1/memories/by-file", params=query)) == (400, "ValidationError")


def test_memories_of_a_file_are_paged(team: Tenant):
    """by-file has a cursor like every list."""
    post(team, *({"content": str(number), "filesRead": ["a.py"]} for number in range(5)))

    found = [page["memories"] for page in pages(team, "/v1/memories/by-file", path="a.py", limit=2)]
    assert [len(memories) for memories in found] == [2, 2, 1]


def test_a_team_key_without_a_project_lists_the_team(as_team: AsTeam):
    """All projects of the team, and of no other team."""
    team = as_team("a")
    other = team.http.post("/v1/projects", json={"name": "other"}).json()["project"]["id"]
    post(team, {"content": "here"}, {"content": "there", "projectId": other})
    post(as_team("b"), {"content": "elsewhere"})

    assert sorted(listed(team)) == ["here", "there"]
    assert listed(team, projectId=other) == ["there"]


def test_a_new_project_does_not_invalidate_a_cursor_of_the_team(team: Tenant):
    """A cursor is bound to the query, not to the projects that existed."""
    post(team, *({"content": str(number)} for number in range(4)))
    first = team.http.get("/v1/memories", params={"limit": 2}).json()
    team.http.post("/v1/projects", json={"name": "new"})

    second = team.http.get("/v1/memories", params={"limit": 2, "cursor": first["nextCursor"]})

    assert [memory["narrative"] for memory in second.json()["memories"]] == ["1", "0"]


def test_a_project_key_lists_its_project(team: Tenant, server):
    """It may omit the project, and cannot name another."""
    other = team.http.post("/v1/projects", json={"name": "other"}).json()["project"]["id"]
    post(team, {"content": "here"}, {"content": "there", "projectId": other})
    key = make_key(server.database, team.caller, scopes=("memories:read",), project_id=other)

    with client(server, key) as http:
        assert [memory["narrative"] for memory in http.get("/v1/memories").json()["memories"]] == ["there"]
        assert code_of(http.get("/v1/memories", params={"projectId": team.project_id})) == (403, "Forbidden")


@pytest.mark.parametrize("path", ["/v1/memories", "/v1/memories/by-file?path=a", "/v1/sessions", "/v1/events"])
def test_a_list_of_a_project_out_of_reach_is_403(as_team: AsTeam, path: str):
    """Another team's project and an unknown one get the same answer."""
    replies = [
        as_team("a").http.get(
            path, params={**dict([path.split("?")[1].split("=")] if "?" in path else []), "projectId": p}
        )
        for p in (as_team("b").project_id, "0" * 36, "odd", "")
    ]

    assert [code_of(reply) for reply in replies] == [(403, "Forbidden")] * 4
    assert len({reply.json()["detail"] for reply in replies}) == 1


def forge_cursor(at: Any, bound_to: str) -> str:
    return base64.urlsafe_b64encode(json.dumps([at, bound_to]).encode()).decode().rstrip("=")


@pytest.fixture
def cursor(team: Tenant) -> str:
    """The cursor of the team's list, page length 1."""
    post(team, {"content": "a"}, {"content": "b"})
    return str(team.http.get("/v1/memories", params={"limit": 1}).json()["nextCursor"])


@pytest.mark.parametrize(
    "at",
    [
        [2**70, 1],
        [-(2**70), 1],
        ["a", 1],
        [1, "a\0"],
        [1.5, 1],
        [1],
        [1, 2, 3],
        [None, 1],
        [True, 1],
        [],
        {},
        7,
        "x",
        [[1], 1],
    ],
)
def test_a_forged_cursor_is_refused(team: Tenant, cursor: str, at: Any):
    """Whatever a cursor says, it is either a position in this list or a 400."""
    _, bound_to = json.loads(base64.urlsafe_b64decode(cursor + "=="))

    assert code_of(team.http.get("/v1/memories", params={"cursor": forge_cursor(at, bound_to)})) == (
        400,
        "ValidationError",
    )


@pytest.mark.parametrize("text", ["", "x", "====", "é", "YQ", "x" * 1999, "x" * 5000, "bnVsbA"])
def test_a_malformed_cursor_is_refused(team: Tenant, text: str):
    """A text that no reply has returned is a 400."""
    assert code_of(team.http.get("/v1/memories", params={"cursor": text})) == (400, "ValidationError")


def test_a_tampered_cursor_is_refused(team: Tenant, cursor: str):
    """A cursor with a changed, missing or added character is a 400, or a position in the same list."""
    for place in range(len(cursor)):
        other = cursor[:place] + ("A" if cursor[place] != "A" else "B") + cursor[place + 1 :]
        reply = team.http.get("/v1/memories", params={"cursor": other})
        assert reply.status_code in (200, 400)
    assert team.http.get("/v1/memories", params={"cursor": cursor[:-1]}).status_code == 400


@pytest.mark.parametrize(
    ("path", "query"),
    [("/v1/memories", {"kinds": "manual"}), ("/v1/memories", {"orderBy": "oldest"}), ("/v1/sessions", {})],
)
def test_a_cursor_is_valid_for_its_own_list_only(team: Tenant, cursor: str, path: str, query: dict[str, str]):
    """Other filters, another order or another list refuse it."""
    assert code_of(team.http.get(path, params={**query, "cursor": cursor})) == (400, "ValidationError")


def test_a_cursor_of_another_team_is_refused(as_team: AsTeam, cursor: str):
    """It reveals nothing."""
    assert code_of(as_team("b").http.get("/v1/memories", params={"cursor": cursor})) == (400, "ValidationError")
