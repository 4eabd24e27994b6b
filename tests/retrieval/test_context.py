"""The block that an agent reads before it answers."""

import pytest

from app.retrieval import context, secrets, text
from app.retrieval.context import ContextEntry

DAY = 1_779_235_200_000  # 2026-05-20


def built(entries: list[ContextEntry], query: str = "keys", **limits: int) -> context.ContextBlock:
    options = {"limit": 10, "max_characters": 1_500, "max_characters_per_memory": 120, **limits}
    return context.build_block(entries, text.terms(query), **options)


def test_memory_becomes_one_dated_line():
    """Title first, then the sentence that matches best."""
    entry = ContextEntry("Rotation decided", ("Much was said.\nKeys rotate weekly.",), DAY)
    assert built([entry]).text == "[memory]\n- [2026-05-20] Rotation decided: Keys rotate weekly."


def test_no_entries_give_an_empty_text():
    """Without entries there is no header either."""
    assert built([]) == context.ContextBlock("", ())


def test_near_duplicates_are_included_once():
    """What an earlier line says is not repeated."""
    same = ["keys rotate weekly on monday without downtime", "Keys rotate weekly on Monday, without downtime!", "other"]
    assert built([ContextEntry(None, (narrative,), DAY) for narrative in same]).used == (0, 2)


def test_limit_counts_lines():
    """The header is not one of them."""
    entries = [ContextEntry(None, (f"key number{n} of {n * 7}",), DAY) for n in range(5)]
    assert built(entries, limit=2).used == (0, 1)


@pytest.mark.parametrize("sample", ["plain words ", "数据库连接超时 ", "👨‍👩‍👧 ", "e\u0301e\u0301 "])
@pytest.mark.parametrize("size", [10, 24, 25, 40, 100, 333])
def test_block_stays_within_its_budget(sample, size):
    """Block and lines respect their limits in code points, in any script."""
    entries = [ContextEntry(f"{n} " + sample * 3, (f"{n}{n} " + sample * 30,), DAY) for n in range(10)]
    block = built(entries, max_characters=size, max_characters_per_memory=50).text
    assert len(block) <= size
    assert all(len(line) <= len("- [2026-05-20] ") + 50 for line in block.splitlines())


@pytest.mark.parametrize("moment", [-1, 0, 10**18])
def test_invalid_time_becomes_the_nearest_date(moment):
    """A corrupt timestamp does not lose the memory."""
    assert built([ContextEntry("keys", (), moment)]).used == (0,)


@pytest.mark.parametrize(
    ("language", "begins"), [("en", "Answer from these facts only."), ("zh", "只根据下列事实回答")]
)
def test_sandwich_has_rule_facts_and_question(language, begins):
    """The rule comes first, the question last."""
    whole = context.sandwich("[memory]\n- fact", " why? ", language)
    assert whole.startswith(begins)
    assert whole.endswith("why?")


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-" + "a1B2" * 8,
        "ghp_" + "a1B2" * 9,
        "AKIA" + "ABCD1234" * 2,
        "cmem_abc123_" + "Z9" * 22,
        "eyJhbGciOiJIUzI1.eyJzdWIiOiIx.c2lnbmF0dXJl",
        "-----BEGIN RSA PRIVATE KEY-----\nMIIEow\nabc\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_secret_is_masked(secret):
    """Keys, tokens and private keys do not leave the server."""
    assert secrets.mask(f"use {secret} here") == "use [masked] here"


@pytest.mark.parametrize("named", ["password: ", "api_key=", "密码：", "Bearer ", '"token": "'])
def test_value_named_as_a_secret_is_masked(named):
    """Whatever is called a password is one."""
    assert secrets.mask(f"{named}hunter2hunter2") == f"{named}[masked]"


@pytest.mark.parametrize(
    "harmless",
    [
        "the token is rotated weekly",
        "password reset flow",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "sk-learn",
    ],
)
def test_talk_about_secrets_is_not_masked(harmless):
    """Ordinary sentences stay as they are."""
    assert secrets.mask(harmless) == harmless


def test_secret_is_masked_before_the_line_is_truncated():
    """Truncation leaves no beginning of a key."""
    line = built(
        [ContextEntry(None, ("keys " * 4 + "sk-proj-" + "a1B2" * 30,), DAY)], max_characters_per_memory=40
    ).text
    assert "a1B2" not in line
