"""One order out of words and meaning."""

import numpy as np
import pytest

from app.retrieval import fusion, ranking, scripts
from app.retrieval.calibration import Nearness
from app.retrieval.fusion import Evidence


def evidence(keyword, cosine, *, sessions=None, presence=None, questions=None) -> Evidence:
    keyword = np.array(keyword, float)
    presence = np.array(presence, float) if presence is not None else np.array([keyword > 0], float)
    size = len(keyword)
    return Evidence(keyword, np.array(cosine, float), presence, sessions or [None] * size, questions or [False] * size)


def fused(given: Evidence, *, readable_share: float = 1.0) -> fusion.Fused:
    return fusion.fuse(given, np.ones(len(given.presence)), readable_share=readable_share)


def best(given: Evidence, **options) -> int:
    return int(np.argmax(fused(given, **options).scores))


ALIKE = [0.30, 0.31, 0.29, 0.30, 0.31, 0.30, 0.29, 0.31]


def test_what_both_legs_like_comes_first():
    """A candidate that is good in words and meaning beats one that is best in one of them."""
    assert best(evidence([0.9, 0.8, 0.0, 0.0, 0.1], [0.1, 0.65, 0.7, 0.1, 0.1])) == 1


def test_a_decided_leg_outweighs_an_undecided_one():
    """When all cosines are alike, words have more to say than when one stands out."""
    words = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.1]
    standing_out = [0.1, 0.9, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]
    assert fused(evidence(words, ALIKE)).meaning_weight < fused(evidence(words, standing_out)).meaning_weight


def test_a_script_the_model_cannot_read_leaves_it_little_say():
    """Near-random cosines of another script never outvote an exact hit in words."""
    given = evidence([0.8, 0.0, 0.0, 0.0], [0.2, 0.9, 0.3, 0.3])
    assert fused(given, readable_share=0.0).meaning_weight < 0.15
    assert best(given, readable_share=0.0) == 0


def test_without_a_word_in_common_meaning_decides():
    """A paraphrase is found by its cosine alone."""
    given = evidence([0.0, 0.0, 0.0], [0.2, 0.7, 0.3])
    assert (best(given), fused(given).meaning_weight) == (1, 1.0)


def test_a_session_that_says_the_rest_of_the_query_helps_its_memories():
    """Of equal memories the one whose session holds the other words comes first."""
    given = evidence(
        [0.5, 0.5, 0.4, 0.0],
        [0.3, 0.3, 0.3, 0.3],
        sessions=["a", "b", "b", "c"],
        presence=[[1, 1, 0, 0], [0, 0, 1, 0]],
    )
    scores = fused(given).scores
    assert scores[1] > scores[0]


def test_an_answer_stands_above_a_question_that_is_as_near():
    """Who asks wants to know what was said, not that somebody else has asked."""
    assert best(evidence([0.5, 0.5, 0.1], [0.5, 0.5, 0.1], questions=[True, False, False])) == 1


def test_a_question_that_is_nearer_stays_above():
    """It is a penalty between near equals and no wall."""
    assert best(evidence([0.9, 0.3, 0.1, 0.1], [0.9, 0.3, 0.1, 0.1], questions=[True, False, False, False])) == 0


@pytest.mark.parametrize("size", [0, 1, 2])
def test_few_candidates_are_scored_without_a_fault(size):
    """No candidates, one, or equal ones give finite scores."""
    scores = fused(evidence([0.5] * size, [0.5] * size)).scores
    assert len(scores) == size
    assert np.isfinite(scores).all()


def test_shown_scores_fall_along_the_order():
    """Scores that are shown lie in 0…1 and never rise from one hit to the next."""
    given = evidence([0.9, 0.0, 0.4, 0.1], [0.2, 0.8, 0.5, 0.1])
    whole = fused(given)
    shown = fusion.displayed(
        given, whole, Nearness(related=0.3, unrelated=0.2, deviation=0.07), ranking.order(whole.scores, np.arange(4))
    )
    assert (np.diff(shown) <= 0).all()
    assert ((shown >= 0) & (shown <= 1)).all()


@pytest.mark.parametrize(
    ("query", "share"),
    [("why does it fail", 1.0), ("连接超时", 0.0), ("Redis 超时", 1 / 3), ("сервер", 0.0), ("42 !", 1.0), ("", 1.0)],
)
def test_the_share_of_a_query_that_a_model_reads(query, share):
    """Words count by their script; digits and signs need no reading."""
    assert scripts.readable_share(query, lambda script: script == "Latn") == pytest.approx(share)
