"""One ranking from lexical and semantic scores."""

from dataclasses import dataclass

import numpy as np
import pytest

from app.retrieval import fusion, ranking, scripts
from app.retrieval.calibration import SemanticScores, SimilarityCalibration
from app.retrieval.fusion import FusedScores
from app.retrieval.ranking import ScoredDocuments

CALIBRATION = SimilarityCalibration(related=0.3, unrelated=0.2, deviation=0.07)


@dataclass
class Candidates:
    """What both retrievers say of some candidates."""

    lexical: ScoredDocuments
    cosines: np.ndarray
    sessions: list[str | None]
    are_questions: list[bool]

    def semantic(self, *, readable_share: float = 1.0) -> SemanticScores:
        similarities = CALIBRATION.similarities(self.cosines)
        return SemanticScores(self.cosines, similarities, self.cosines >= CALIBRATION.related, readable_share)


def candidates(lexical, cosines, *, sessions=None, matches=None, are_questions=None) -> Candidates:
    scores = np.array(lexical, float)
    binary = np.array(matches, float) if matches is not None else np.array([scores > 0], float)
    size = len(scores)
    return Candidates(
        ScoredDocuments(scores, binary),
        np.array(cosines, float),
        sessions or [None] * size,
        are_questions or [False] * size,
    )


def fused(given: Candidates, *, readable_share: float = 1.0) -> FusedScores:
    return fusion.fuse(
        given.lexical,
        given.semantic(readable_share=readable_share),
        np.ones(len(given.lexical.binary_frequencies)),
        sessions=given.sessions,
        are_questions=given.are_questions,
    )


def best(given: Candidates, **options) -> int:
    return int(np.argmax(fused(given, **options).scores))


ALIKE = [0.30, 0.31, 0.29, 0.30, 0.31, 0.30, 0.29, 0.31]


def test_candidate_that_both_retrievers_like_ranks_first():
    """A candidate that scores well in both beats those that are best in one of them."""
    assert best(candidates([0.9, 0.8, 0.0, 0.0, 0.1], [0.1, 0.65, 0.7, 0.1, 0.1])) == 1


def test_retriever_with_a_clear_best_hit_outweighs_one_without():
    """When all cosines are alike, lexical scores weigh more than when one cosine is distinct."""
    lexical = [1.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.0, 0.1]
    clear = [0.1, 0.9, 0.1, 0.1, 0.1, 0.1, 0.1, 0.1]
    assert fused(candidates(lexical, ALIKE)).semantic_weight < fused(candidates(lexical, clear)).semantic_weight


def test_script_the_model_cannot_read_gets_little_semantic_weight():
    """Near-random cosines of another script never outvote an exact lexical match."""
    given = candidates([0.8, 0.0, 0.0, 0.0], [0.2, 0.9, 0.3, 0.3])
    assert fused(given, readable_share=0.0).semantic_weight < 0.15
    assert best(given, readable_share=0.0) == 0


def test_cosine_decides_when_no_word_matches():
    """A paraphrase is found by its cosine alone."""
    given = candidates([0.0, 0.0, 0.0], [0.2, 0.7, 0.3])
    assert (best(given), fused(given).semantic_weight) == (1, 1.0)


def test_session_with_the_rest_of_the_query_raises_its_memories():
    """Of equal memories, the one whose session has the other words ranks first."""
    given = candidates(
        [0.5, 0.5, 0.4, 0.0],
        [0.3, 0.3, 0.3, 0.3],
        sessions=["a", "b", "b", "c"],
        matches=[[1, 1, 0, 0], [0, 0, 1, 0]],
    )
    scores = fused(given).scores
    assert scores[1] > scores[0]


def test_answer_ranks_above_an_equally_similar_question():
    """A user wants to know what was answered, not that somebody else asked the same."""
    assert best(candidates([0.5, 0.5, 0.1], [0.5, 0.5, 0.1], are_questions=[True, False, False])) == 1


def test_much_more_similar_question_still_ranks_first():
    """The penalty decides between near equals and excludes nothing."""
    given = candidates([0.9, 0.3, 0.1, 0.1], [0.9, 0.3, 0.1, 0.1], are_questions=[True, False, False, False])
    assert best(given) == 0


@pytest.mark.parametrize("size", [0, 1, 2])
def test_few_candidates_get_finite_scores(size):
    """No candidates, a single one and equal ones have no spread to normalise by."""
    scores = fused(candidates([0.5] * size, [0.5] * size)).scores
    assert len(scores) == size
    assert np.isfinite(scores).all()


def test_display_scores_never_increase_along_the_order():
    """Displayed scores are in 0…1 and never increase from one hit to the next."""
    given = candidates([0.9, 0.0, 0.4, 0.1], [0.2, 0.8, 0.5, 0.1])
    whole = fused(given)
    order = ranking.order(whole.scores, np.arange(4))
    displayed = fusion.display_scores(given.lexical, given.semantic(), whole, order)
    assert (np.diff(displayed) <= 0).all()
    assert ((displayed >= 0) & (displayed <= 1)).all()


@pytest.mark.parametrize(
    ("query", "share"),
    [("why does it fail", 1.0), ("连接超时", 0.0), ("Redis 超时", 1 / 3), ("сервер", 0.0), ("42 !", 1.0), ("", 1.0)],
)
def test_readable_share_counts_words_by_script(query, share):
    """Digits and punctuation can be read in any script."""
    assert scripts.readable_share(query, lambda script: script == "Latn") == pytest.approx(share)
