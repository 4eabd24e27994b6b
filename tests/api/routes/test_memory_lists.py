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
    """Every row that stood at the start comes once, although rows of the same time are written between the pages."""
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
    """Order is by time of creation, and for equal times by the order of writing."""
    post(team, *({"content": text, "createdAtEpoch": at} for text, at in [("b", 2), ("c", 3), ("a", 1), ("c2", 3)]))

    assert listed(team) == ["c2", "c", "b", "a"]
    assert listed(team, orderBy="oldest") == ["a", "b", "c", "c2"]


def test_the_last_page_says_so(team: Tenant):
    """`nextCursor` is null exactly when nothing follows."""
    post(team, *({"content": str(number)} for number in range(4)))

    assert [(len(page["memories"]), page["nextCursor"] is None) for page in pages(team, limit=2)] == [
        (2, False),
        (2, True),
    ]


def test_a_page_has_50_rows_unless_told_otherwise(team: Tenant):
    """The default limit is 50, the largest 200."""
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
def test_a_filter_lets_through_what_it_names(varied: Tenant, query: dict[str, Any], texts: str):
    """Each filter narrows, repeats of one key widen, ranges are half open."""
    assert "".join(listed(varied, **query)) == texts


def test_a_session_is_a_filter(varied: Tenant):
    """Only the memories of that session are listed."""
    session = varied.http.get("/v1/sessions").json()["sessions"][0]["id"]

    assert listed(varied, serverSessionId=session) == ["d"]


def test_filters_are_applied_before_the_page_is_cut(team: Tenant):
    """A page is full although most rows are filtered away."""
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
def test_what_is_known_of_a_file_is_listed(varied: Tenant, query: dict[str, Any], texts: str):
    """By the very file, or by a folder with what lies below; several paths widen."""
    reply = varied.http.get("/v1/memories/by-file", params={"projectId": varied.project_id, **query})

    assert "".join(memory["narrative"] for memory in reply.json()["memories"]) == texts


@pytest.mark.parametrize("query", [{}, {"path": ""}, {"path": ["a", " "]}, {"path": "a", "isFolder": "yes"}])
def test_a_file_must_be_named(team: Tenant, query: dict[str, Any]):
    """No path, or a blank one, does not mean every file."""
    assert code_of(team.http.get("/v1/memories/by-file", params=query)) == (400, "ValidationError")


def test_what_is_known_of_a_file_is_paged(team: Tenant):
    """by-file has the cursor of every list."""
    post(team, *({"content": str(number), "filesRead": ["a.py"]} for number in range(5)))

    found = [page["memories"] for page in pages(team, "/v1/memories/by-file", path="a.py", limit=2)]
    assert [len(memories) for memories in found] == [2, 2, 1]


def test_a_team_key_that_names_no_project_lists_the_team(as_team: AsTeam):
    """All projects of the team, and nobody else's."""
    team = as_team("a")
    other = team.http.post("/v1/projects", json={"name": "other"}).json()["project"]["id"]
    post(team, {"content": "here"}, {"content": "there", "projectId": other})
    post(as_team("b"), {"content": "elsewhere"})

    assert sorted(listed(team)) == ["here", "there"]
    assert listed(team, projectId=other) == ["there"]


def test_a_team_list_can_be_paged_on_when_a_project_is_made_meanwhile(team: Tenant):
    """A cursor is bound to what was asked, and not to the projects that there were."""
    post(team, *({"content": str(number)} for number in range(4)))
    first = team.http.get("/v1/memories", params={"limit": 2}).json()
    team.http.post("/v1/projects", json={"name": "new"})

    second = team.http.get("/v1/memories", params={"limit": 2, "cursor": first["nextCursor"]})

    assert [memory["narrative"] for memory in second.json()["memories"]] == ["1", "0"]


def test_a_project_key_lists_its_project(team: Tenant, server):
    """It may leave the project out, and may not name another."""
    other = team.http.post("/v1/projects", json={"name": "other"}).json()["project"]["id"]
    post(team, {"content": "here"}, {"content": "there", "projectId": other})
    key = make_key(server.database, team.caller, scopes=("memories:read",), project_id=other)

    with client(server, key) as http:
        assert [memory["narrative"] for memory in http.get("/v1/memories").json()["memories"]] == ["there"]
        assert code_of(http.get("/v1/memories", params={"projectId": team.project_id})) == (403, "Forbidden")


@pytest.mark.parametrize("path", ["/v1/memories", "/v1/memories/by-file?path=a", "/v1/sessions", "/v1/events"])
def test_a_list_of_a_project_out_of_reach_is_403(as_team: AsTeam, path: str):
    """Another team's project and none at all get the same answer."""
    replies = [
        as_team("a").http.get(
            path, params={**dict([path.split("?")[1].split("=")] if "?" in path else []), "projectId": p}
        )
        for p in (as_team("b").project_id, "0" * 36, "odd", "")
    ]

    assert [code_of(reply) for reply in replies] == [(403, "Forbidden")] * 4
    assert len({reply.json()["detail"] for reply in replies}) == 1


def forged(at: Any, bound_to: str) -> str:
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
    """Whatever a cursor says, it is either a place in this list or a 400."""
    _, bound_to = json.loads(base64.urlsafe_b64decode(cursor + "=="))

    assert code_of(team.http.get("/v1/memories", params={"cursor": forged(at, bound_to)})) == (400, "ValidationError")


@pytest.mark.parametrize("text", ["", "x", "====", "é", "YQ", "x" * 1999, "x" * 5000, "bnVsbA"])
def test_what_is_no_cursor_is_refused(team: Tenant, text: str):
    """A text that no reply has given is a 400."""
    assert code_of(team.http.get("/v1/memories", params={"cursor": text})) == (400, "ValidationError")


def test_a_tampered_cursor_is_refused(team: Tenant, cursor: str):
    """A cursor with a changed, a missing or an added character is a 400, or a place in the very same list."""
    for place in range(len(cursor)):
        other = cursor[:place] + ("A" if cursor[place] != "A" else "B") + cursor[place + 1 :]
        reply = team.http.get("/v1/memories", params={"cursor": other})
        assert reply.status_code in (200, 400)
    assert team.http.get("/v1/memories", params={"cursor": cursor[:-1]}).status_code == 400


@pytest.mark.parametrize(
    ("path", "query"),
    [("/v1/memories", {"kinds": "manual"}), ("/v1/memories", {"orderBy": "oldest"}), ("/v1/sessions", {})],
)
def test_a_cursor_holds_for_its_own_list_only(team: Tenant, cursor: str, path: str, query: dict[str, str]):
    """Other filters, another order or another list do not take it."""
    assert code_of(team.http.get(path, params={**query, "cursor": cursor})) == (400, "ValidationError")


def test_a_cursor_is_useless_to_another_team(as_team: AsTeam, cursor: str):
    """It is refused, and tells nothing."""
    assert code_of(as_team("b").http.get("/v1/memories", params={"cursor": cursor})) == (400, "ValidationError")
