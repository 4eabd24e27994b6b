"""Candidates of a retriever, and a ranking of them."""

import numpy as np

from app.services.search.results import Candidates, Contribution, Ranking


def candidates(**scores: float) -> Candidates:
    """Candidates given by `m<seq>=score`."""
    seqs = np.array([int(name[1:]) for name in scores], np.int64)
    return Candidates.best_first("keyword", seqs, np.array([*scores.values()], float), weight=0.5)


def test_candidates_are_sorted_by_score_and_the_later_of_equals_comes_first():
    """The order is total, so that pages do not overlap."""
    sorted_candidates = candidates(m1=0.2, m2=0.9, m3=0.2)

    assert sorted_candidates.seqs.tolist() == [2, 3, 1]
    assert sorted_candidates.scores.tolist() == [0.9, 0.2, 0.2]


def test_contribution_tells_the_rank_among_all_candidates():
    """Not only among those of the page; what the retriever did not find has none."""
    found = candidates(m1=0.1, m2=0.9, m3=0.5).contributions(np.array([7, 1, 3]))

    assert found == {3: Contribution("keyword", 2, 0.5, 0.5), 1: Contribution("keyword", 3, 0.1, 0.5)}


def test_part_of_a_ranking_keeps_scores_with_their_memories():
    """In the order that is asked for, and with everything else as it was."""
    ranking = Ranking(np.array([4, 5, 6]), np.array([0.9, 0.5, 0.1]), (), "fts", notice="note")
    taken = ranking.take(np.array([2, 0]))

    assert (taken.seqs.tolist(), taken.scores.tolist()) == ([6, 4], [0.1, 0.9])
    assert (taken.strategy, taken.notice) == ("fts", "note")
