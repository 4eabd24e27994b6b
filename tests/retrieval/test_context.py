"""The block that an agent reads before it answers."""

import pytest

from app.retrieval import context, secrets, text
from app.retrieval.context import Entry

DAY = 1_779_235_200_000  # 2026-05-20


def told(entries: list[Entry], query: str = "keys", **limits: int) -> context.Block:
    options = {"limit": 10, "max_characters": 1_500, "max_characters_per_memory": 120, **limits}
    return context.block(entries, text.terms(query), **options)


def test_a_memory_is_one_dated_line():
    """Title first, then the sentence that answers."""
    entry = Entry("Rotation decided", ("Much was said.\nKeys rotate weekly.",), DAY)
    assert told([entry]).text == "[memory]\n- [2026-05-20] Rotation decided: Keys rotate weekly."


def test_nothing_to_tell_is_an_empty_text():
    """Without entries there is no header either."""
    assert told([]) == context.Block("", ())


def test_near_duplicates_are_told_once():
    """What an earlier line said is not said again."""
    same = ["keys rotate weekly on monday without downtime", "Keys rotate weekly on Monday, without downtime!", "other"]
    assert told([Entry(None, (narrative,), DAY) for narrative in same]).used == (0, 2)


def test_no_more_lines_than_asked_for():
    """The limit counts lines."""
    entries = [Entry(None, (f"key number{n} of {n * 7}",), DAY) for n in range(5)]
    assert told(entries, limit=2).used == (0, 1)


@pytest.mark.parametrize("sample", ["plain words ", "数据库连接超时 ", "👨‍👩‍👧 ", "e\u0301e\u0301 "])
@pytest.mark.parametrize("size", [10, 24, 25, 40, 100, 333])
def test_the_block_stays_within_its_budget(sample, size):
    """Whole and lines are within their limits in code points, in any script."""
    entries = [Entry(f"{n} " + sample * 3, (f"{n}{n} " + sample * 30,), DAY) for n in range(10)]
    block = told(entries, max_characters=size, max_characters_per_memory=50).text
    assert len(block) <= size
    assert all(len(line) <= len("- [2026-05-20] ") + 50 for line in block.splitlines())


@pytest.mark.parametrize("moment", [-1, 0, 10**18])
def test_any_time_has_a_date(moment):
    """A damaged time is told as the nearest date there is."""
    assert told([Entry("keys", (), moment)]).used == (0,)


@pytest.mark.parametrize(
    ("language", "begins"), [("en", "Answer from these facts only."), ("zh", "只根据下列事实回答")]
)
def test_a_sandwich_holds_rule_facts_and_question(language, begins):
    """The rule comes before, the question behind."""
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
def test_a_secret_is_masked(secret):
    """Keys, tokens and private keys do not leave."""
    assert secrets.masked(f"use {secret} here") == "use [masked] here"


@pytest.mark.parametrize("named", ["password: ", "api_key=", "密码：", "Bearer ", '"token": "'])
def test_a_value_named_as_a_secret_is_masked(named):
    """What is called a password is one."""
    assert secrets.masked(f"{named}hunter2hunter2") == f"{named}[masked]"


@pytest.mark.parametrize(
    "harmless",
    [
        "the token is rotated weekly",
        "password reset flow",
        "commit 3f786850e387550fdab836ed7e6dc881de23001b",
        "sk-learn",
    ],
)
def test_talking_about_secrets_is_not_masked(harmless):
    """Ordinary sentences stay as they are."""
    assert secrets.masked(harmless) == harmless


def test_a_secret_is_masked_before_the_line_is_cut():
    """No beginning of a key is left when its end was cut off."""
    line = told([Entry(None, ("keys " * 4 + "sk-proj-" + "a1B2" * 30,), DAY)], max_characters_per_memory=40).text
    assert "a1B2" not in line
