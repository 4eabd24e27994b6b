"""/v1/conversations over HTTP."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests import chat_model
from tests.conftest import Server, Tenant, make_tenant
from tests.problems import code_of

AsTeam = Callable[[str], Tenant]
AT = 1_700_000_000_000
CHAT = [
    {"role": "user", "content": "我要退款，订单 4417，299 元", "occurredAtEpoch": AT},
    {"role": "assistant", "content": "已退款 299 元", "occurredAtEpoch": AT + 1},
    {"role": "user", "content": "Please **renew** my plan", "occurredAtEpoch": AT + 2},
    {"role": "assistant", "content": "Renewed for $99"},
]


def send(team: Tenant, headers: dict[str, str] | None = None, **fields: Any) -> httpx.Response:
    body = {"projectId": team.project_id, "messages": CHAT, **fields}
    return team.http.post("/v1/conversations", json=body, headers=headers)


def test_a_conversation_is_stored_as_memories(team: Tenant):
    """One per chunk, with text, time and tags, each as its own route shows it."""
    reply = send(team, tags=["chat"])
    stored = reply.json()

    assert (reply.status_code, stored["chunks"]) == (201, 2)
    assert [memory["content"] for memory in stored["memories"]] == [
        "User: 我要退款，订单 4417，299 元\nAssistant: 已退款 299 元",
        "User: Please renew my plan\nAssistant: Renewed for $99",
    ]
    assert [memory["createdAtEpoch"] for memory in stored["memories"]] == [AT, AT + 2]
    assert [memory["concepts"] for memory in stored["memories"]] == [["chat", "finance", "order"], ["chat", "account"]]
    for memory in stored["memories"]:
        assert team.http.get(f"/v1/memories/{memory['id']}").json()["memory"] == memory


def test_the_same_conversation_again_returns_the_existing_memories(team: Tenant):
    """200 and the same reply; nothing is stored twice."""
    first, again = send(team), send(team)

    assert (first.status_code, again.status_code) == (201, 200)
    assert again.json() == first.json()
    assert len(team.http.get("/v1/memories").json()["memories"]) == 2


def test_a_conversation_sent_many_times_at_once_is_stored_once(team: Tenant):
    """One request creates it, the others find it."""
    with ThreadPoolExecutor(8) as clients:
        replies = [future.result() for future in [clients.submit(send, team) for _ in range(8)]]

    assert sorted(reply.status_code for reply in replies) == [200] * 7 + [201]
    assert len({reply.text for reply in replies}) == 1
    assert len(team.http.get("/v1/memories").json()["memories"]) == 2


def test_each_chunk_is_found_by_its_number(team: Tenant):
    """Search finds what the conversation was about."""
    send(team)

    for query, number in (("退款", "299"), ("renew plan", "$99")):
        body = {"projectId": team.project_id, "query": query}
        assert number in team.http.post("/v1/search", json=body).json()["memories"][0]["content"]


def test_a_conversation_can_belong_to_a_session(team: Tenant):
    """Its memories do; the same words in another session are other memories."""
    body = {"projectId": team.project_id, "externalSessionId": "s"}
    session = team.http.post("/v1/sessions/start", json=body).json()["session"]["id"]
    alone, within = send(team), send(team, sessionId=session)

    assert [memory["serverSessionId"] for memory in within.json()["memories"]] == [session] * 2
    assert (alone.status_code, within.status_code) == (201, 201)


def test_a_session_of_another_project_is_not_found(as_team: AsTeam):
    """It looks like one that never existed, and nothing is stored."""
    mine, other = as_team("a"), as_team("b")
    body = {"projectId": other.project_id, "externalSessionId": "s"}
    theirs = other.http.post("/v1/sessions/start", json=body).json()["session"]["id"]

    assert [code_of(send(mine, sessionId=each)) for each in (theirs, "no-such-id")] == [(404, "NotFound")] * 2
    assert code_of(send(mine, projectId=other.project_id)) == (403, "Forbidden")
    assert mine.http.get("/v1/memories").json()["memories"] == []


def test_an_idempotency_key_replays_the_first_reply(team: Tenant):
    """A memory that has been deleted since is not restored."""
    headers = {"Idempotency-Key": "one"}
    first, again = send(team, headers), send(team, headers)

    assert (again.status_code, again.headers["Idempotent-Replayed"]) == (201, "true")
    assert again.json() == first.json()
    team.http.delete(f"/v1/memories/{first.json()['memories'][0]['id']}")
    assert code_of(send(team, headers)) == (404, "NotFound")


def test_a_conversation_with_nothing_to_store_is_no_error(team: Tenant):
    """An empty reply, and nothing is stored."""
    reply = send(team, messages=[{"role": "user", "content": "<private>x"}, {"role": "system", "content": "y"}])

    assert (reply.status_code, reply.json()) == (200, {"memories": [], "chunks": 0})


@pytest.mark.parametrize(
    "fields",
    [
        {"messages": []},
        {"messages": [{"role": "user"}]},
        {"messages": [{"role": "", "content": "x"}]},
        {"messages": [{"role": "user", "content": 1}]},
        {"messages": [{"role": "user", "content": "x", "occurredAtEpoch": "1"}]},
        {"messages": [{"role": "user", "content": "x", "name": "y"}]},
        {"messages": [{"role": "user", "content": "x"}] * 2_001},
        {"messages": [{"role": "user", "content": "x" * 400_000}] * 2},
        {"tags": [""]},
        {"tag": ["x"]},
    ],
)
def test_a_malformed_conversation_is_refused(team: Tenant, fields: dict[str, Any]):
    """Nothing is coerced, ignored or partially stored."""
    assert code_of(send(team, **fields)) == (400, "ValidationError")


def test_malformed_rules_in_the_metadata_are_a_conflict(team: Tenant):
    """The reply says where to look."""
    team.http.patch(f"/v1/projects/{team.project_id}", json={"metadata": {"conversationRules": {"tags": 1}}})

    reply = send(team)

    assert code_of(reply) == (409, "Conflict")
    assert "conversationRules" in reply.json()["detail"]


@pytest.fixture
def chunked_by_llm(start_server: Callable[..., Server]) -> Iterator[tuple[Tenant, chat_model.Model]]:
    """A team of a server that calls an LLM."""
    with chat_model.serving() as model:
        server = start_server(chunker="openai", chunker_url=model.url, chunker_model="small", chunker_api_key="secret")
        team = make_tenant(server, "model")
        yield team, model
        team.http.close()


def test_an_llm_can_be_configured_for_chunking(chunked_by_llm: tuple[Tenant, chat_model.Model]):
    """The settings lead to it, including the key."""
    team, model = chunked_by_llm
    model.content = '{"starts": [0, 1, 2, 3]}'

    assert send(team).json()["chunks"] == 4
    assert (model.requests[0]["model"], model.keys) == ("small", ["Bearer secret"])


def test_a_repeated_request_keeps_the_chunks_of_the_llm(chunked_by_llm: tuple[Tenant, chat_model.Model]):
    """The same memories and the same count, without calling the LLM again."""
    team, model = chunked_by_llm
    model.content = '{"starts": [0, 1, 2, 3]}'
    headers = {"Idempotency-Key": "one"}

    first, again = send(team, headers), send(team, headers)

    assert again.json() == first.json()
    assert len(model.requests) == 1


def test_only_its_own_request_waits_for_the_llm(chunked_by_llm: tuple[Tenant, chat_model.Model]):
    """Other writes go on: it is called outside transactions, on a thread of its own."""
    team, model = chunked_by_llm
    model.may_answer.clear()
    with ThreadPoolExecutor(1) as elsewhere:
        pending = elsewhere.submit(send, team)
        assert model.was_asked.wait(20)
        written = team.post_memory(content="meanwhile")
        assert (written.status_code, pending.done()) == (201, False)
        model.may_answer.set()
        assert pending.result(timeout=20).status_code == 201


def test_rules_replace_an_unreachable_llm(start_server: Callable[..., Server]):
    """The conversation is stored all the same."""
    server = start_server(chunker="openai", chunker_url="http://127.0.0.1:9/v1", chunker_model="small")
    team = make_tenant(server, "model")

    reply = send(team)

    assert (reply.status_code, reply.json()["chunks"]) == (201, 2)
    team.http.close()
