"""Texts split into sentences and pieces."""

import pytest

from app.retrieval import sentences


@pytest.mark.parametrize(
    ("said", "cut"),
    [
        ("One. Two! Three?", ["One.", " Two!", " Three?"]),
        ("一。二！三", ["一。", "二！", "三"]),
        ("one\ntwo", ["one\n", "two"]),
        ("It is v3.11.4 of a.py", ["It is v3.11.4 of a.py"]),
        ("The price is:\n$49.90 a month", ["The price is:\n$49.90 a month"]),
        ("Total\n299 元。Next", ["Total\n299 元。", "Next"]),
        ("Due. 2026-05-20", ["Due. 2026-05-20"]),
        ("See No. 4417", ["See No. 4417"]),
        ("Prices:\n- Basic: $5\n- Pro: $10", ["Prices:\n- Basic: $5\n", "- Pro: $10"]),
        ("Steps\n1. stop\n2. start", ["Steps\n", "1. stop\n", "2. start"]),
        ("", [""]),
    ],
)
def test_sentences_keep_numbers_with_what_introduces_them(said: str, cut: list[str]):
    """List items may be separated."""
    assert sentences.of(said) == cut


def test_pieces_are_whole_sentences():
    """As many as fit, the first with a limit of its own."""
    said = "Aaaa. Bbbb. Cccc. Dddd."

    assert list(sentences.pieces(said, max_characters=12, first=6)) == ["Aaaa.", "Bbbb. Cccc.", "Dddd."]


def test_overlong_sentence_is_split_between_words():
    """And not before a number."""
    cut = list(sentences.pieces("the price is 4900 for you", max_characters=14, first=14))

    assert cut == ["the price", "is 4900 for", "you"]


def test_text_without_words_is_split_outside_numbers():
    """When there is no better boundary."""
    said = "x" * 8 + "1234" + "y" * 8

    assert list(sentences.pieces(said, max_characters=10, first=10)) == ["x" * 8, "1234yyyyyy", "yy"]
