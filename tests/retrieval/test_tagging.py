"""The tags of a text."""

import pytest

from app.retrieval.tagging import DEFAULT_TAGS, Vocabulary


@pytest.mark.parametrize(
    ("said", "tags"),
    [
        ("The invoices were paid", ["finance"]),
        ("我要退款，订单号 12345", ["finance", "order"]),
        ("Login TIMEOUT after the update", ["account", "tech_support"]),
        ("客户端闪退，报错 500", ["tech_support"]),
        ("pricey borders, invoiced? no", ["finance"]),
        ("Nothing of the kind", []),
    ],
)
def test_text_gets_the_tags_whose_words_it_has(said: str, tags: list[str]):
    """In any inflection and script, and never for part of another word."""
    assert Vocabulary(DEFAULT_TAGS).names_in(said) == tags


def test_phrases_match_as_a_whole():
    """The words of a phrase must be adjacent."""
    vocabulary = Vocabulary({"reset": ["forgot my password"]})

    assert vocabulary.names_in("I FORGOT my passwords!") == ["reset"]
    assert vocabulary.names_in("my password, which I forgot") == []


@pytest.mark.parametrize("words", [[], [""], ["***"]])
def test_name_without_words_never_matches(words: list[str]):
    """An empty list switches a rule off, and punctuation matches nothing."""
    assert Vocabulary({"finance": words}).names_in("invoice *** ") == []
