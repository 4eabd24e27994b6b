"""/v1/context: a block within its budget, the same bytes for the same rows, and nothing if nothing is relevant."""

from typing import Any

import pytest

from tests.api.routes.test_search import DAY_MS, remember
from tests.conftest import Tenant

MAY_20 = 1_779_235_200_000


def get_context(tenant: Tenant, query: str, **options: Any) -> dict[str, Any]:
    body = {"projectId": tenant.project_id, "query": query, **options}
    reply = tenant.http.post("/v1/context", json=body)
    assert reply.status_code == 200, reply.text
    answer: dict[str, Any] = reply.json()
    return answer


def test_the_block_is_ready_for_a_prompt(team: Tenant):
    """One dated line per memory, best first, with the memories alongside."""
    remember(team, [{"title": "Key rotation", "content": "Signing keys rotate weekly.", "createdAtEpoch": MAY_20}])
    remember(team, [{"content": "The office has a coffee machine.", "createdAtEpoch": MAY_20 + DAY_MS}])
    answer = get_context(team, "how often do signing keys rotate?")
    assert answer["context"] == "[memory]\n- [2026-05-20] Key rotation: Signing keys rotate weekly."
    assert ([memory["title"] for memory in answer["memories"]], answer["sufficient"]) == (["Key rotation"], True)


def test_the_same_question_returns_the_same_bytes(team: Tenant):
    """Asked ten times of the same rows, the context is identical."""
    remember(team, [{"content": f"The gasket {n % 3} leaks at {n}"} for n in range(40)])
    assert len({get_context(team, "which gasket leaks?")["context"] for _ in range(10)}) == 1


@pytest.mark.parametrize(
    ("content", "query"),
    [
        ("数据库连接超时，重启后恢复，原因是连接池太小，第{n}次记录" * 4, "数据库连接超时"),
        ("deployed 👩‍👩‍👧‍👦🇩🇪👍🏽 the gasket service {n} " * 8, "gasket service"),
        ("The gasket of pump number {n} leaks, and was replaced by a copper one. " * 4, "gasket leaks"),
    ],
    ids=["chinese", "emoji", "english"],
)
@pytest.mark.parametrize("max_chars", [50, 157, 1_500])
def test_the_block_fits_its_budget(team: Tenant, content: str, query: str, max_chars: int):
    """In any script, counted in code points, and never cut within a character."""
    remember(team, [{"content": content.format(n=f"{n} {n * 7919}")} for n in range(30)])
    context = get_context(team, query, maxChars=max_chars, limit=50)["context"]
    assert 0 < len(context) <= max_chars
    for line in context.splitlines()[1:]:
        text = line.removeprefix("- [2026-05-20] ")[len("- [2026-11-30] ") if line.startswith("- [") else 0 :]
        assert len(text) <= 120
        assert not line.rstrip("…").endswith("\u200d")


@pytest.mark.parametrize("query", ["what is the weather in Lisbon tomorrow", "zzqx-9931", "???", ""])
def test_context_is_empty_if_nothing_is_relevant(team: Tenant, query: str):
    """The agent can say that it does not know."""
    remember(team, [{"content": f"Signing keys rotate weekly, part {n}."} for n in range(5)])
    answer = get_context(team, query, format="sandwich")
    assert (answer["context"], answer["sufficient"], answer["memories"]) == ("", False, [])


def test_sandwich_format_holds_instruction_block_and_question(team: Tenant):
    """Ready to be sent as it is."""
    remember(team, [{"content": "签名密钥每周轮换", "createdAtEpoch": MAY_20}])
    context = get_context(team, "密钥多久轮换？", format="sandwich", language="zh")["context"]
    assert context.splitlines() == [
        "只根据下列事实回答；其中没有答案时，请直接说不知道。",
        "",
        "[memory]",
        "- [2026-05-20] 签名密钥每周轮换",
        "",
        "问题：密钥多久轮换？",
    ]


def test_near_duplicates_appear_once(team: Tenant):
    """Two memories that say the same take one line."""
    remember(
        team, [{"content": "The copper gasket leaks at the pump"}, {"content": "The copper gasket leaks at the pump!"}]
    )
    assert len(get_context(team, "copper gasket")["memories"]) == 1


def test_secrets_are_masked(team: Tenant):
    """A stored key does not get into a prompt."""
    remember(team, [{"content": "The deploy key is sk-live-abcdefghijklmnop1234"}])
    context = get_context(team, "deploy key")["context"]
    assert "[masked]" in context
    assert "abcdefghijklmnop" not in context
