"""The piece of a memory that shows why it was found."""

import pytest

from app.retrieval import snippets, text


def shown(whole: str, query: str, **options) -> str | None:
    return snippets.snippet([whole], text.terms(query), **options)


def test_an_inflected_word_is_marked():
    """What the ranker counts as the word is what a person sees marked."""
    assert shown("Signing keys rotate weekly", "rotation key") == "Signing <mark>keys</mark> <mark>rotate</mark> weekly"


def test_chinese_is_marked_in_its_original_form():
    """The spaced text of the index is never shown."""
    assert shown("数据库连接超时，请重试", "连接超时") == "数据库<mark>连接超时</mark>，请重试"


def test_the_text_with_more_of_the_query_is_shown():
    """Of several fields the one that answers best is taken."""
    terms = text.terms("retry timeout")
    assert snippets.snippet(["a retry", "retry after a timeout"], terms) == (
        "<mark>retry</mark> after a <mark>timeout</mark>"
    )


def test_a_long_text_is_shown_around_the_match():
    """The window lies around the match and says where text was left out."""
    shortened = shown("before " * 200 + "the needle " + "after " * 200, "needle", max_characters=60)
    assert shortened is not None
    assert shortened.startswith("…")
    assert shortened.endswith("…")
    assert "<mark>needle</mark>" in shortened


def test_without_a_match_the_beginning_is_shown():
    """A memory found by its neighbours or its meaning still shows something."""
    assert shown("Signing keys rotate", "unrelated") == "Signing keys rotate"


def test_nothing_to_show_is_none():
    """Blank fields have no snippet."""
    assert snippets.snippet([None, " "], text.terms("anything")) is None


@pytest.mark.parametrize("whole", ["👨‍👩‍👧" * 100, "e\u0301" * 300, "👍🏽" * 200, "漢字" * 300])
def test_a_cut_stays_within_the_limit_and_between_characters(whole):
    """A cut text is no longer than asked for and ends with a whole character."""
    for limit in range(1, 60):
        shortened = snippets.cut(whole, limit)
        assert len(shortened) <= limit
        assert whole.startswith(shortened.removesuffix("…"))
        rest = whole[len(shortened.removesuffix("…")) :]
        assert rest[0] not in "\u200d\u0301\U0001f3fd"


def test_a_cut_falls_at_the_end_of_a_word():
    """Words are not cut in two where spaces part them."""
    assert snippets.cut("rotate the signing keys", 14) == "rotate the…"
