"""Lexical relevance of memories to a query."""

from dataclasses import dataclass

import numpy as np
import pytest

from app.retrieval import ranking, text

DAY_MS = ranking.DAY_MS


@dataclass
class Document:
    """What the ranker reads of a memory."""

    heading: str
    body: str
    context_text: str
    characters: int


@dataclass
class Version:
    """What decides between equally relevant memories."""

    id: str
    created_at_epoch: int
    superseded_by: str | None


def scored(query: str, bodies: list[str], *, headings: list[str] | None = None, context: list[str] | None = None):
    """Score texts as if they were all of a project."""
    terms = text.terms(query)
    documents = [
        Document(heading, body, context_text, len(heading) + len(body))
        for heading, body, context_text in zip(
            headings or [""] * len(bodies), bodies, context or [""] * len(bodies), strict=True
        )
    ]
    marked = [text.marked(f"{document.heading} {document.body}") for document in documents]
    frequencies = [sum(any(p in document for p in term.patterns) for document in marked) for term in terms]
    unmatched = np.zeros((len(terms), len(documents)))
    return ranking.score_documents(
        terms,
        ranking.term_weights(terms, frequencies, len(documents)),
        unmatched,
        unmatched,
        documents,
        average_characters=sum(document.characters for document in documents) / len(documents),
    ).scores


def test_more_matching_terms_score_higher():
    """A memory with both words beats one that repeats a single word."""
    both, one = scored("signing rotation", ["signing rotation", "signing signing signing"])
    assert both > one > 0


def test_rare_term_scores_higher_than_a_common_one():
    """A word that nearly every memory has decides little."""
    rare, common = scored("server gasket", ["gasket", "server", "server", "server"])[:2]
    assert rare > common


def test_heading_counts_more_than_the_body():
    """A title names what a memory is about."""
    heading, body = scored("gasket", ["", "gasket"], headings=["gasket", ""])
    assert heading > body


def test_context_text_counts_less_than_own_text():
    """Adjacent messages help a memory to be found, below those that have the words themselves."""
    own, adjacent, nothing = scored("gasket", ["gasket", "yes", "no"], context=["", "gasket", ""])
    assert own > adjacent > nothing == 0


def test_adjacent_terms_score_higher_than_separate_ones():
    """Adjacent words of the query that are adjacent in the memory mean the same thing."""
    together, apart = scored("support group", ["a support group again", "support of a group again"])
    assert together > apart


def test_among_long_texts_the_shorter_one_scores_higher():
    """Among passages, the same word counts more in a short one."""
    filler = " ".join(f"word{number}" for number in range(60))
    short, long = scored("gasket", [f"gasket {filler}", f"gasket {filler} {filler.replace('word', 'other')}"])
    assert short > long


def test_term_beyond_the_text_that_is_read_still_counts():
    """A word matched by the index counts once even if the ranker does not read that far."""
    terms = text.terms("gasket")
    own, context = np.array([[1.0]]), np.array([[0.0]])
    document = [Document("", "the beginning of something long", "", 100_000)]
    weights = ranking.term_weights(terms, [1], 10)
    scored_documents = ranking.score_documents(terms, weights, own, context, document, average_characters=500)
    assert scored_documents.scores[0] > 0


@pytest.mark.parametrize("days", [1, 365, 3_650])
def test_age_only_breaks_ties(days):
    """The newer of two equal memories ranks first, and a better one stays ahead however old it is."""
    versions = [Version("old", 0, None), Version("new", days * DAY_MS, None)]
    options = {"newest_at_epoch": days * DAY_MS, "half_life_days": 30.0}
    equal = ranking.prefer_current(np.array([0.5, 0.5]), versions, **options)
    better = ranking.prefer_current(np.array([0.52, 0.5]), versions, **options)
    assert equal[1] > equal[0]
    assert better[0] > better[1]


def test_superseded_memory_ranks_below_its_replacement():
    """Even when it matches better."""
    versions = [Version("old", 0, "new"), Version("new", 0, None)]
    old, new = ranking.prefer_current(np.array([0.9, 0.3]), versions, newest_at_epoch=0, half_life_days=90.0)
    assert new > old > 0


def test_later_of_equal_memories_ranks_first():
    """The order is total, so that pages never overlap."""
    assert ranking.order(np.array([0.5, 0.5, 0.7]), np.array([1, 2, 3])).tolist() == [2, 1, 0]


def test_display_scores_keep_the_order_within_bounds():
    """They are between 0 and 1 and sort as the scores do."""
    displayed = ranking.display_scores(np.array([0.0, 0.2, 1.0, 2.75])).tolist()
    assert displayed == sorted(displayed)
    assert displayed[0] == 0
    assert displayed[-1] < 1
