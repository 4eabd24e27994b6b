"""How good an answer a memory is to a query."""

import numpy as np
import pytest

from app.retrieval import ranking, text
from app.retrieval.ranking import Document, Place

DAY_MS = ranking.DAY_MS


def scored(query: str, bodies: list[str], *, headings: list[str] | None = None, neighbours: list[str] | None = None):
    """Score texts as the whole of a project, with its own statistics."""
    terms = text.terms(query)
    documents = [
        Document(heading, body, beside, len(heading) + len(body))
        for heading, body, beside in zip(
            headings or [""] * len(bodies), bodies, neighbours or [""] * len(bodies), strict=True
        )
    ]
    whole = [text.marked(f"{document.heading} {document.body}") for document in documents]
    frequencies = [sum(any(p in document for p in term.patterns) for document in whole) for term in terms]
    unseen = np.zeros((len(terms), len(documents)))
    return ranking.by_frequency(
        terms,
        ranking.weights(terms, frequencies, len(documents)),
        unseen,
        unseen,
        documents,
        average_characters=sum(document.characters for document in documents) / len(documents),
    ).scores


def test_more_of_the_query_is_better():
    """A memory with both words stands above one that says a single one often."""
    both, one = scored("signing rotation", ["signing rotation", "signing signing signing"])
    assert both > one > 0


def test_a_rare_word_tells_more_than_a_common_one():
    """What nearly every memory says decides little."""
    rare, common = scored("server gasket", ["gasket", "server", "server", "server"])[:2]
    assert rare > common


def test_a_heading_counts_more_than_the_body():
    """A title names what a memory is about."""
    heading, body = scored("gasket", ["", "gasket"], headings=["gasket", ""])
    assert heading > body


def test_a_neighbour_lends_less_than_what_is_said():
    """The text beside a memory helps it to be found, below those that say it themselves."""
    own, beside, nothing = scored("gasket", ["gasket", "yes", "no"], neighbours=["", "gasket", ""])
    assert own > beside > nothing == 0


def test_words_side_by_side_are_better_than_apart():
    """Adjacent words of the query that are adjacent in the memory mean the same thing."""
    together, apart = scored("support group", ["a support group again", "support of a group again"])
    assert together > apart


def test_in_long_texts_the_shorter_says_it_more_clearly():
    """Among passages the same word counts more in a short one."""
    filler = " ".join(f"word{number}" for number in range(60))
    short, long = scored("gasket", [f"gasket {filler}", f"gasket {filler} {filler.replace('word', 'other')}"])
    assert short > long


def test_a_term_of_the_index_counts_even_where_it_was_not_read():
    """A word behind the part that the ranker reads still counts once."""
    terms = text.terms("gasket")
    found, missing = np.array([[1.0]]), np.array([[0.0]])
    document = [Document("", "the beginning of something long", "", 100_000)]
    worth = ranking.weights(terms, [1], 10)
    judged = ranking.by_frequency(terms, worth, found, missing, document, average_characters=500)
    assert judged.scores[0] > 0


@pytest.mark.parametrize("days", [1, 365, 3_650])
def test_age_breaks_ties_and_never_hides(days):
    """The newer of two equal memories comes first, and a better one stays better however old it is."""
    places = [Place("old", 0, None), Place("new", days * DAY_MS, None)]
    options = {"newest_at_epoch": days * DAY_MS, "half_life_days": 30.0}
    equal = ranking.prefer_current(np.array([0.5, 0.5]), places, **options)
    better = ranking.prefer_current(np.array([0.52, 0.5]), places, **options)
    assert equal[1] > equal[0]
    assert better[0] > better[1]


def test_what_was_replaced_stands_below_its_replacement():
    """A superseded memory comes after the one that replaces it, even when it answers better."""
    places = [Place("old", 0, "new"), Place("new", 0, None)]
    old, new = ranking.prefer_current(np.array([0.9, 0.3]), places, newest_at_epoch=0, half_life_days=90.0)
    assert new > old > 0


def test_of_equal_memories_the_later_comes_first():
    """The order is total, so that pages never overlap."""
    assert ranking.order(np.array([0.5, 0.5, 0.7]), np.array([1, 2, 3])).tolist() == [2, 1, 0]


def test_displayed_scores_keep_the_order_within_bounds():
    """What is shown lies between 0 and 1 and sorts as the score does."""
    shown = ranking.displayed(np.array([0.0, 0.2, 1.0, 2.75])).tolist()
    assert shown == sorted(shown)
    assert shown[0] == 0
    assert shown[-1] < 1
