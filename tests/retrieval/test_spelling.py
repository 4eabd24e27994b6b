"""Words that were typed with one slip."""

import pytest

from app.retrieval import spelling, text


@pytest.mark.parametrize("slip", ["retreival", "retrival", "retrieeval", "retrievel", "retrieva", "retrievall"])
def test_one_slip_is_forgiven(slip):
    """A letter too many, missing, wrong, or two exchanged."""
    assert spelling.is_one_slip(slip, "retrieval")


@pytest.mark.parametrize("other", ["retrieval", "retreivel", "retrieve", "tretrieva", "retrievalll", "removal"])
def test_no_slip_and_two_slips_are_not_one(other):
    """Equal words need no correction, and words further apart are other words."""
    assert not spelling.is_one_slip(other, "retrieval")


def test_a_term_becomes_the_known_words_nearby():
    """The corrected term asks for what is known, and counts less."""
    (term,) = text.terms("retreival")
    found = spelling.corrected(term, ["retrieval", "other"])
    assert found is not None
    assert found.phrases == (("retrieval",),)
    assert found.weight < term.weight


@pytest.mark.parametrize("query", ["cat", "rate-limit", "h4ndler", "数据"])
def test_short_words_and_identifiers_are_left_alone(query):
    """Only words that are long enough to be recognised are corrected."""
    assert spelling.beginning(text.terms(query)[0]) is None
