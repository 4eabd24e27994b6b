"""What is removed from messages before they are stored."""

import time

import pytest

from app.retrieval import cleaning


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("a <private>secret</private>b", "a b"),
        ("a<PRIVATE>secret</Private>b", "ab"),
        ("a<private>x<private>secret</private>secret</private>b", "ab"),
        ("a<private>x<thinking>y</private>secret</thinking>b", "ab"),
        ("a<thinking>x<private>y</thinking>secret</private>b", "ab"),
        ("a <private>secret to the end", "a"),
        ("a <private secret, the tag is cut off", "a"),
        ("a <private <private>secret</private>", "a"),
        ("secret</private>b", "b"),
        ("thoughts of a model</think>answer", "answer"),
        ("a<thinking>x</thinking>b<system-reminder>y</system-reminder>c<System_Reminder>z</System_Reminder>d", "abcd"),
        ('a<private reason="mine">secret</private >b', "ab"),
        ("a< private >secret</ private>b", "ab"),
        ("a<private\n>secret\n</private>b", "ab"),
        ("`<private>`secret", "`"),
        ("<private/>a", "a"),
        ("<private>secret</private>", ""),
    ],
)
def test_private_and_internal_regions_are_removed(said: str, kept: str):
    """Nested, overlapping, unclosed, unopened, in any spelling: whatever may be inside one is dropped."""
    assert cleaning.clean(said) == kept


@pytest.mark.parametrize("said", ["the <private-key> tag", "a keyboard <thinker>", "if a < private_limit:", "private"])
def test_similar_words_are_kept(said: str):
    """Only the exact tags count."""
    assert cleaning.clean(said) == said


@pytest.mark.parametrize(
    ("said", "kept"),
    [
        ("**bold** and *italics* and ***both***, ~~gone~~", "bold and italics and both, gone"),
        ("**bold *and italics* too**", "bold and italics too"),
        ("这是**299元**的*会员*", "这是299元的会员"),
        ("# Title\ntext", "Title\ntext"),
        ("> quoted\n>> twice", "quoted\ntwice"),
        ("* one\n• two\n- three", "- one\n- two\n- three"),
        ("above\n---\nbelow", "above\n\nbelow"),
        ("| plan | price |\n|---|:-:|\n| Pro | $10 |", "plan | price\n\nPro | $10"),
        ('[the docs](https://a.b/c "title") ![shot](x.png)', "the docs (https://a.b/c) shot"),
        ("run `pip install *` now", "run pip install * now"),
        ("```python\nx = 2 ** 3\n    y = **kw\n```\nafter", "x = 2 ** 3\n    y = **kw\nafter"),
        ("one<br>two", "one\ntwo"),
    ],
)
def test_markdown_is_stripped_and_the_words_are_kept(said: str, kept: str):
    """The text reads as if it had never been formatted; code is left alone."""
    assert cleaning.clean(said) == kept


@pytest.mark.parametrize(
    "said", ["2**3**4", "a * b * c", "snake_case and __init__", "#123", "C# and C++", "-5", "5 * $3", "~/a ~/b"]
)
def test_text_that_only_resembles_markdown_is_kept(said: str):
    """Numbers, identifiers and arithmetic are what memories are about."""
    assert cleaning.clean(said) == said


def test_whitespace_is_normalised():
    """One space between words, one blank line between paragraphs, none at the ends, nothing invisible."""
    assert cleaning.clean(" \ufeffa\u00a0 \tb  \r\n\r\n\r\n \n\n c\u200b \u2028d ") == "a b\n\nc\nd"


@pytest.mark.parametrize(
    ("role", "prefix"),
    [("user", "User"), ("Human", "User"), ("assistant", "Assistant"), (" AI ", "Assistant"), ("tool", "Tool")],
)
def test_role_maps_to_a_prefix(role: str, prefix: str):
    """Whatever a client calls the two sides, they read the same."""
    assert cleaning.speaker(role) == prefix


@pytest.mark.parametrize("role", ["system", "System", "developer"])
def test_system_prompts_are_ignored(role: str):
    """They say how to behave, not what happened."""
    assert cleaning.speaker(role) is None


@pytest.mark.parametrize(
    "unit",
    ["<private>", "<private ", "**a ", "`a", "![", "[a](", "*a", "- ", "|--", "```\n", "\n ", "< ", "*" + "a" * 400],
)
def test_cleaning_takes_linear_time(unit: str):
    """Time grows with the text and no faster."""
    started = time.perf_counter()
    cleaning.clean(unit * (200_000 // len(unit)))
    assert time.perf_counter() - started < 5
