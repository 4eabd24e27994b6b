"""/v1/events over HTTP."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.conftest import Tenant
from tests.problems import code_of

AsTeam = Callable[[str], Tenant]


def body(team: Tenant, **fields: Any) -> dict[str, Any]:
    standard = {"sourceType": "hook", "eventType": "tool_use", "occurredAtEpoch": 1_796_039_100_176}
    return {"projectId": team.project_id, **standard, **fields}


def post(team: Tenant, query: str = "", **fields: Any) -> httpx.Response:
    return team.http.post(f"/v1/events{query}", json=body(team, **fields))


def stored(team: Tenant, **fields: Any) -> dict[str, Any]:
    reply = post(team, **fields)
    assert reply.status_code == 201, reply.text
    return dict(reply.json()["event"])


def session(team: Tenant, **fields: Any) -> str:
    made = team.http.post("/v1/sessions/start", json={"projectId": team.project_id, **fields})
    return str(made.json()["session"]["id"])


def test_an_event_comes_back_as_it_was_sent(team: Tenant):
    """Under its noun, with every field, and where `Location` says."""
    fields = {
        "sourceEventId": "e1",
        "contentSessionId": "c",
        "memorySessionId": "m",
        "platformSource": "cursor",
        "payload": {"tool_name": "Read", "nested": {"a": [1, 2.5, None]}},
        "metadata": {"b": 1},
    }
    reply = post(team, **fields)
    event = reply.json()["event"]

    assert {name: event[name] for name in fields} == fields
    assert team.http.get(reply.headers["Location"]).json() == {"event": event}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"payload": {"a": 1, "b": [1, 2]}},
        {"payload": {"a": 1}, "contentSessionId": "c"},
        {"memorySessionId": "m"},
    ],
)
def test_the_same_event_again_is_stored_once(team: Tenant, fields: dict[str, Any]):
    """Same project, session, type, time and payload: 200 with the same id."""
    first, again = post(team, **fields), post(team, **fields)

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()


def test_the_order_of_payload_keys_does_not_matter(team: Tenant):
    """An object is its keys and values."""
    first = stored(team, payload={"a": 1, "b": {"c": 2, "d": 3}})

    assert post(team, payload={"b": {"d": 3, "c": 2}, "a": 1}).json()["event"]["id"] == first["id"]


def test_no_payload_and_an_empty_one_are_the_same(team: Tenant):
    """Omitted, null and empty payloads are equal."""
    first = stored(team)

    assert [post(team, payload=empty).json()["event"]["id"] for empty in (None, {})] == [first["id"]] * 2


@pytest.mark.parametrize(
    "change",
    [
        {"payload": {"a": 2}},
        {"eventType": "other"},
        {"sourceType": "api"},
        {"occurredAtEpoch": 1},
        {"contentSessionId": "d"},
        {"memorySessionId": "n"},
        {"sourceEventId": "e"},
    ],
)
def test_a_different_event_is_stored_separately(team: Tenant, change: dict[str, Any]):
    """Each part of its identity distinguishes events."""
    first = stored(team, payload={"a": 1})

    assert stored(team, **{"payload": {"a": 1}, **change})["id"] != first["id"]


def test_source_event_id_alone_identifies_an_event(team: Tenant):
    """With a `sourceEventId`, nothing else counts."""
    first = stored(team, sourceEventId="e", payload={"a": 1})

    again = post(team, sourceEventId="e", payload={"a": 2}, occurredAtEpoch=5)

    assert (again.status_code, again.json()["event"]) == (200, first)


def test_concurrent_retries_store_an_event_once(team: Tenant):
    """Ten parallel retries without an Idempotency-Key: one row."""
    with ThreadPoolExecutor(10) as pool:
        replies = list(pool.map(lambda _: post(team, payload={"a": 1}), range(10)))

    assert sorted(reply.status_code for reply in replies) == [200] * 9 + [201]
    assert len({reply.json()["event"]["id"] for reply in replies}) == 1


def test_an_event_finds_its_session_by_the_content_id(team: Tenant):
    """It joins the existing session, and equals an event that names the session."""
    known = session(team, contentSessionId="c")
    event = stored(team, contentSessionId="c")

    assert event["serverSessionId"] == known
    assert post(team, serverSessionId=known).json()["event"]["id"] == event["id"]


def test_an_event_of_an_unknown_session_has_no_session(team: Tenant):
    """It is stored without one."""
    assert stored(team, contentSessionId="nobody's")["serverSessionId"] is None


def test_an_event_sent_before_and_after_its_session_started_is_one(team: Tenant):
    """Joining a session does not change its identity."""
    first = stored(team, contentSessionId="c")
    session(team, contentSessionId="c")

    assert post(team, contentSessionId="c").json()["event"]["id"] == first["id"]


def test_a_content_id_never_leads_into_another_project(team: Tenant):
    """The session of the same content id in another project is not joined."""
    other = team.http.post("/v1/projects", json={"name": "other"}).json()["project"]["id"]
    session(team, contentSessionId="c", projectId=other)

    assert stored(team, contentSessionId="c")["serverSessionId"] is None


def test_sessions_of_other_projects_look_missing(as_team: AsTeam):
    """A session of another team, of another project, or an unknown one is 404."""
    team = as_team("a")
    other = team.http.post("/v1/projects", json={"name": "other"}).json()["project"]["id"]
    wrong = [session(as_team("b")), session(team, projectId=other), "0" * 36, "odd", ""]

    replies = [post(team, serverSessionId=value) for value in wrong]

    assert [code_of(reply) for reply in replies] == [(404, "NotFound")] * len(wrong)
    assert len({reply.json()["detail"] for reply in replies}) == 1


@pytest.mark.parametrize("query", ["?generate=false", "?wait=true", "?generate=true&wait=true"])
def test_query_parameters_of_older_clients_are_accepted(team: Tenant, query: str):
    """`generate` and `wait` have no effect."""
    assert post(team, query).status_code == 201


def test_unknown_keys_are_ignored(team: Tenant):
    """The senders are hooks of several tools."""
    assert post(team, somethingNew={"a": 1}).status_code == 201


@pytest.mark.parametrize(
    "fields",
    [
        {"occurredAtEpoch": "1"},
        {"occurredAtEpoch": 1.0},
        {"occurredAtEpoch": -1},
        {"occurredAtEpoch": None},
        {"payload": [1]},
        {"payload": "x"},
        {"sourceType": ""},
        {"eventType": None},
    ],
)
def test_known_keys_are_validated_strictly(team: Tenant, fields: dict[str, Any]):
    """A value of another type or out of range is refused."""
    assert code_of(post(team, **fields)) == (400, "ValidationError")


def test_a_batch_is_answered_in_input_order_without_duplicates(team: Tenant):
    """Up to 500 events at once; a duplicate is stored once."""
    items = [body(team, payload={"n": number}) for number in (1, 2, 1, 3)]
    reply = team.http.post("/v1/events/batch?generate=false", json=items)
    events = reply.json()["events"]

    assert reply.status_code == 201
    assert [event["payload"]["n"] for event in events] == [1, 2, 1, 3]
    assert events[0]["id"] == events[2]["id"]


@pytest.mark.parametrize(
    ("bad", "status"),
    [({"eventType": 7}, 400), ({"projectId": "nobody's"}, 403), ({"serverSessionId": "nobody's"}, 404)],
)
def test_one_bad_event_rejects_the_whole_batch(team: Tenant, bad: dict[str, Any], status: int):
    """Nothing of a refused batch is stored."""
    reply = team.http.post("/v1/events/batch", json=[body(team), body(team, **bad)])

    assert code_of(reply)[0] == status
    assert team.http.get("/v1/events").json()["events"] == []


def test_events_are_listed_newest_first(team: Tenant):
    """By the time they occurred, each once, also among equal times."""
    known = session(team, contentSessionId="c")
    items = [body(team, occurredAtEpoch=1000 + number // 3, payload={"n": number}) for number in range(9)]
    team.http.post("/v1/events/batch", json=[*items, body(team, serverSessionId=known, occurredAtEpoch=1)])

    seen, cursor = [], None
    while True:
        page = team.http.get("/v1/events", params={"limit": 4, **({"cursor": cursor} if cursor else {})}).json()
        seen += [event["payload"].get("n") for event in page["events"]]
        if (cursor := page["nextCursor"]) is None:
            break

    assert sorted(seen[:-1], reverse=True) == list(range(8, -1, -1))
    assert [number // 3 for number in seen[:-1]] == [2, 2, 2, 1, 1, 1, 0, 0, 0]
    of_session = team.http.get("/v1/events", params={"serverSessionId": known}).json()["events"]
    assert [event["serverSessionId"] for event in of_session] == [known]


def test_a_foreign_event_looks_missing(as_team: AsTeam):
    """Another team's event is 404, exactly like one that never existed."""
    foreign = stored(as_team("b"))["id"]

    def seen(event_id: str) -> dict[str, Any]:
        reply = as_team("a").http.get(f"/v1/events/{event_id}")
        assert code_of(reply) == (404, "NotFound")
        return {**reply.json(), "instance": "", "requestId": ""}

    assert seen(foreign) == seen("0" * 36) == seen("odd")
    assert as_team("a").http.get("/v1/events").json()["events"] == []
