"""/v1/memories/{id}/related over HTTP, without vectors; tests/services/search/test_related.py covers those."""

from collections.abc import Callable
from typing import Any

from tests.conftest import Tenant
from tests.problems import code_of

AsTeam = Callable[[str], Tenant]
AT = 1_700_000_000_000


def remember(team: Tenant, content: str, **fields: Any) -> str:
    reply = team.post_memory(content=content, **fields)
    assert reply.status_code == 201, reply.text
    return str(reply.json()["memory"]["id"])


def related(team: Tenant, memory_id: str, **query: Any) -> dict[str, Any]:
    reply = team.http.get(f"/v1/memories/{memory_id}/related", params=query)
    assert reply.status_code == 200, reply.text
    return dict(reply.json())


def reasons(reply: dict[str, Any]) -> dict[str, list[str]]:
    return {memory["content"]: memory["matchedBy"] for memory in reply["memories"]}


def session_of(team: Tenant, name: str) -> str:
    body = {"projectId": team.project_id, "externalSessionId": name}
    return str(team.http.post("/v1/sessions/start", json=body).json()["session"]["id"])


def test_memories_that_share_words_are_related(team: Tenant):
    """Without vectors words decide, and the report says that only words were searched."""
    one = remember(team, "the payment gateway times out after three seconds")
    remember(team, "raised the timeout of the payment gateway")
    remember(team, "an apple cake for the birthday")

    reply = related(team, one)

    assert reasons(reply) == {"raised the timeout of the payment gateway": ["keyword"]}
    assert (reply["search"]["strategy"], reply["search"]["degraded"]) == ("fts", False)


def test_adjacent_memories_of_the_session_are_related(team: Tenant):
    """The nearest in the session first, whatever they say, in both directions."""
    session = session_of(team, "s")
    texts = ("alpha", "bravo", "charlie", "delta")
    made = [remember(team, text, serverSessionId=session, createdAtEpoch=AT + n) for n, text in enumerate(texts)]
    remember(team, "echo", serverSessionId=session_of(team, "t"), createdAtEpoch=AT + 1)

    reply = related(team, made[1])
    far = related(team, made[0])

    assert all("session" in reason for reason in reasons(reply).values())
    assert [memory["content"] for memory in reply["memories"]] == ["charlie", "alpha", "delta"]
    assert [memory["content"] for memory in far["memories"]] == ["bravo", "charlie", "delta"]


def test_two_reasons_count_for_more_than_one(team: Tenant):
    """A memory that is adjacent and shares words has both reasons, and comes first."""
    session = session_of(team, "s")
    one = remember(team, "the copper gasket leaks", serverSessionId=session, createdAtEpoch=AT)
    remember(team, "ordered a copper gasket", serverSessionId=session, createdAtEpoch=AT + 1)
    remember(team, "the copper gasket", createdAtEpoch=AT + 2)

    first, second = related(team, one)["memories"]

    assert (first["content"], first["matchedBy"]) == ("ordered a copper gasket", ["keyword", "session"])
    assert second["score"] < first["score"] <= 1


def test_a_memory_is_never_related_to_itself(team: Tenant):
    """Neither by its words nor by its session; the limit counts only others."""
    session = session_of(team, "s")
    made = [remember(team, f"the copper gasket {n}", serverSessionId=session) for n in range(6)]

    found = [memory["id"] for memory in related(team, made[0], limit=5)["memories"]]

    assert sorted(found) == sorted(made[1:])


def test_a_related_memory_is_shown_as_search_shows_it(team: Tenant):
    """The memory with its score, the reason, and a snippet with the matching words marked."""
    one = remember(team, "copper gasket")
    other = remember(team, "the copper gasket leaks")

    (shown,) = related(team, one)["memories"]

    memory = team.http.get(f"/v1/memories/{other}").json()["memory"]
    assert {name: shown[name] for name in memory} == memory
    assert shown["snippet"] == "the <mark>copper</mark> <mark>gasket</mark> leaks"


def test_another_project_and_another_team_are_not_related(as_team: AsTeam):
    """Only the memory's own project is searched; a foreign memory looks like one that never existed."""
    mine, other = as_team("a"), as_team("b")
    one = remember(mine, "copper gasket")
    second = mine.http.post("/v1/projects", json={"name": "second"}).json()["project"]["id"]
    remember(mine, "copper gasket", projectId=second)
    theirs = remember(other, "copper gasket")

    assert related(mine, one)["memories"] == []
    replies = [mine.http.get(f"/v1/memories/{memory_id}/related") for memory_id in (theirs, "no-such-id")]
    assert [code_of(reply) for reply in replies] == [(404, "NotFound")] * 2


def test_a_limit_out_of_range_is_refused(team: Tenant):
    """1 to 50."""
    one = remember(team, "x")

    assert [code_of(team.http.get(f"/v1/memories/{one}/related", params={"limit": limit}))[0] for limit in (0, 51)] == [
        400,
        400,
    ]
