"""/v1/timeline over HTTP."""

from collections.abc import Callable
from typing import Any

import pytest

from app.caller import MEMORIES_READ
from tests.conftest import Server, Tenant, client, make_key
from tests.problems import code_of

AsTeam = Callable[[str], Tenant]
AT = 1_700_000_000_000


def remember(team: Tenant, content: str, at_epoch: int, **fields: Any) -> str:
    reply = team.post_memory(content=content, createdAtEpoch=at_epoch, **fields)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["memory"]["id"])


def begin(team: Tenant, name: str, at_epoch: int) -> str:
    body = {"projectId": team.project_id, "externalSessionId": name, "startedAtEpoch": at_epoch}
    return str(team.http.post("/v1/sessions/start", json=body).json()["session"]["id"])


def shown(team: Tenant, **query: Any) -> dict[str, Any]:
    reply = team.http.get("/v1/timeline", params={"projectId": team.project_id, **query})
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def ids(timeline: dict[str, Any]) -> list[str]:
    return [item["id"] for item in timeline["items"]]


def test_memories_prompts_and_sessions_are_in_chronological_order(team: Tenant):
    """What happened before and after a memory, with the memory itself in between."""
    session = begin(team, "s", AT)
    prompt = remember(team, "why?", AT + 1, kind="prompt")
    anchor = remember(team, "because", AT + 2)
    later = begin(team, "t", AT + 3)

    timeline = shown(team, anchor=anchor)

    assert ids(timeline) == [session, prompt, anchor, later]
    assert timeline["anchor"] == {"memoryId": anchor, "atEpoch": AT + 2}
    assert [item["itemType"] for item in timeline["items"]] == ["session", "memory", "memory", "session"]


def test_an_item_is_under_the_key_of_its_type(team: Tenant):
    """The memory and the session look as in their own routes."""
    session, memory = begin(team, "s", AT), remember(team, "x", AT)

    first, second = shown(team, anchor=AT)["items"]

    assert (first["session"], first["memory"]) == (team.http.get(f"/v1/sessions/{session}").json()["session"], None)
    assert (second["memory"], second["session"]) == (team.http.get(f"/v1/memories/{memory}").json()["memory"], None)


def test_before_and_after_limit_the_items(team: Tenant):
    """They count items of both types, the nearest ones."""
    made = [remember(team, f"m{n}", AT + 2 * n) if n % 2 else begin(team, f"s{n}", AT + 2 * n) for n in range(9)]

    assert ids(shown(team, anchor=made[5], before=2, after=1)) == made[3:7]
    assert ids(shown(team, anchor=made[5], before=0, after=0)) == [made[5]]


def test_ten_items_on_each_side_by_default(team: Tenant):
    """The default of `before` and `after`."""
    made = [remember(team, f"m{n}", AT + n) for n in range(30)]

    assert ids(shown(team, anchor=made[15])) == made[5:26]


def test_equal_times_skip_and_repeat_nothing(team: Tenant):
    """Walking from anchor to anchor meets every item of one millisecond once, in one order."""
    sessions = sorted(begin(team, f"s{n}", AT) for n in range(3))
    made = [*sessions, *(remember(team, f"m{n}", AT) for n in range(7))]

    assert ids(shown(team, anchor=AT, after=100)) == made
    for place in range(3, 10):
        timeline = shown(team, anchor=made[place], before=2, after=2)
        assert ids(timeline) == made[max(0, place - 2) : place + 3]


@pytest.mark.parametrize("anchor", [str(AT + 1), "2023-11-14T22:13:20.001Z", "2023-11-14T23:13:20.001+01:00"])
def test_an_anchor_can_be_a_time(team: Tenant, anchor: str):
    """In epoch ms or RFC 3339; items at exactly that time come after it."""
    made = [remember(team, f"m{n}", AT + n) for n in range(4)]

    timeline = shown(team, anchor=anchor, before=1, after=2)

    assert (ids(timeline), timeline["anchor"]) == (made[:3], {"memoryId": None, "atEpoch": AT + 1})


def test_a_query_is_anchored_at_its_best_hit(team: Tenant):
    """Around the best hit of a search in the project."""
    made = [remember(team, text, AT + n) for n, text in enumerate(("a gasket", "the copper gasket", "a bearing"))]

    assert shown(team, query="copper gasket")["anchor"]["memoryId"] == made[1]
    assert ids(shown(team, query="copper gasket", before=1, after=1)) == made


@pytest.mark.parametrize("query", ["zzqx-9931", "", "***"])
def test_a_query_without_hits_has_an_empty_timeline(team: Tenant, query: str):
    """No anchor and no items, and no error."""
    remember(team, "a gasket", AT)

    assert shown(team, query=query) == {"anchor": None, "items": []}


@pytest.mark.parametrize(
    "query",
    [
        {},
        {"anchor": "1", "query": "x"},
        {"anchor": "2023-11-14"},
        {"anchor": "2023-02-31T00:00:00Z"},
        {"anchor": "99999999999999999"},
        {"anchor": "1", "before": "101"},
        {"anchor": "1", "after": "-1"},
        {"anchor": "1", "limit": "5"},
    ],
)
def test_a_timeline_without_one_clear_anchor_is_refused(team: Tenant, query: dict[str, str]):
    """Neither or both, invalid times, counts out of range, and unknown keys."""
    reply = team.http.get("/v1/timeline", params={"projectId": team.project_id, **query})

    assert code_of(reply) == (400, "ValidationError")


def test_a_foreign_anchor_looks_missing(as_team: AsTeam):
    """Another team's memory, another project's, and an unknown one are the same 404."""
    mine, other = as_team("a"), as_team("b")
    body = {"name": "second"}
    second = mine.http.post("/v1/projects", json=body).json()["project"]["id"]
    elsewhere = mine.post_memory(content="x", projectId=second).json()["memory"]["id"]

    replies = [
        mine.http.get("/v1/timeline", params={"projectId": mine.project_id, "anchor": anchor})
        for anchor in (remember(other, "theirs", AT), elsewhere, "no-such-id", "")
    ]

    assert [code_of(reply) for reply in replies] == [(404, "NotFound")] * 4
    assert len({reply.json()["detail"] for reply in replies}) == 1


def test_a_timeline_has_no_rows_of_other_teams(as_team: AsTeam):
    """Only the project's own, and a project out of reach is refused."""
    mine, other = as_team("a"), as_team("b")
    remember(other, "theirs", AT)
    begin(other, "theirs", AT)

    assert shown(mine, anchor=AT)["items"] == []
    assert code_of(mine.http.get("/v1/timeline", params={"projectId": other.project_id, "anchor": AT})) == (
        403,
        "Forbidden",
    )


def test_only_a_project_key_may_omit_the_project(server: Server, team: Tenant):
    """A project key has only one to choose from."""
    made = remember(team, "x", AT)
    key = make_key(server.database, team.caller, scopes=(MEMORIES_READ,), project_id=team.project_id)
    with client(server, key) as bound:
        assert ids(bound.get("/v1/timeline", params={"anchor": made}).json()) == [made]
    assert code_of(team.http.get("/v1/timeline", params={"anchor": made})) == (400, "ValidationError")


def test_a_deleted_memory_is_in_no_timeline(team: Tenant):
    """After the reply to its deletion it is neither an item nor an anchor."""
    gone, kept = remember(team, "x", AT), remember(team, "y", AT)
    team.http.delete(f"/v1/memories/{gone}")

    assert ids(shown(team, anchor=kept)) == [kept]
    assert code_of(team.http.get("/v1/timeline", params={"projectId": team.project_id, "anchor": gone}))[0] == 404
