"""The passage of a memory that shows why it matched."""

import pytest

from app.retrieval import snippets, text


def shown(whole: str, query: str, **options) -> str | None:
    return snippets.snippet([whole], text.terms(query), **options)


def test_inflected_word_is_marked():
    """What the ranker counts as the word is marked."""
    assert shown("Signing keys rotate weekly", "rotation key") == "Signing <mark>keys</mark> <mark>rotate</mark> weekly"


def test_chinese_is_marked_in_its_original_form():
    """The spaced text of the index is never shown."""
    assert shown("数据库连接超时，请重试", "连接超时") == "数据库<mark>连接超时</mark>，请重试"


def test_field_that_matches_best_is_shown():
    """A snippet comes from a single field."""
    terms = text.terms("retry timeout")
    assert snippets.snippet(["a retry", "retry after a timeout"], terms) == (
        "<mark>retry</mark> after a <mark>timeout</mark>"
    )


def test_long_text_is_shown_around_the_match():
    """Ellipses show where text was left out."""
    shortened = shown("before " * 200 + "the needle " + "after " * 200, "needle", max_characters=60)
    assert shortened is not None
    assert shortened.startswith("…")
    assert shortened.endswith("…")
    assert "<mark>needle</mark>" in shortened


def test_beginning_is_shown_without_a_match():
    """A memory found by its context text or its meaning still shows something."""
    assert shown("Signing keys rotate", "unrelated") == "Signing keys rotate"


def test_blank_fields_have_no_snippet():
    """There is nothing to show."""
    assert snippets.snippet([None, " "], text.terms("anything")) is None


@pytest.mark.parametrize("whole", ["👨‍👩‍👧" * 100, "e\u0301" * 300, "👍🏽" * 200, "漢字" * 300])
def test_truncation_respects_the_limit_and_whole_characters(whole):
    """A truncated text is no longer than requested and ends with a whole character."""
    for limit in range(1, 60):
        shortened = snippets.truncate(whole, limit)
        assert len(shortened) <= limit
        assert whole.startswith(shortened.removesuffix("…"))
        rest = whole[len(shortened.removesuffix("…")) :]
        assert rest[0] not in "\u200d\u0301\U0001f3fd"


def test_truncation_ends_at_a_word():
    """Words are not split where spaces delimit them."""
    assert snippets.truncate("rotate the signing keys", 14) == "rotate the…"
