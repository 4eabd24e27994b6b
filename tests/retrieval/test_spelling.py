"""Words misspelt by one edit."""

import pytest

from app.retrieval import spelling, text


@pytest.mark.parametrize("misspelt", ["retreival", "retrival", "retrieeval", "retrievel", "retrieva", "retrievall"])
def test_one_edit_is_recognised(misspelt):
    """A letter too many, missing, wrong, or two transposed."""
    assert spelling.is_one_edit(misspelt, "retrieval")


@pytest.mark.parametrize("other", ["retrieval", "retreivel", "retrieve", "tretrieva", "retrievalll", "removal"])
def test_no_edit_and_two_edits_are_not_one(other):
    """Equal words need no correction, and more distant ones are other words."""
    assert not spelling.is_one_edit(other, "retrieval")


def test_term_becomes_the_known_words_one_edit_away():
    """The corrected term searches for known words, and weighs less."""
    (term,) = text.terms("retreival")
    corrected = spelling.correct(term, ["retrieval", "other"])
    assert corrected is not None
    assert corrected.phrases == (("retrieval",),)
    assert corrected.weight < term.weight


@pytest.mark.parametrize("query", ["cat", "rate-limit", "h4ndler", "数据"])
def test_short_words_and_identifiers_are_not_corrected(query):
    """Only words long enough to be recognised are."""
    assert spelling.prefix(text.terms(query)[0]) is None
