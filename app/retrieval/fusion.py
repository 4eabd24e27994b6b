"""One order out of two: by words and by meaning, each trusted as far as it is decided.

Scores are z-normalised over the candidates of both legs, which are scored by both. A leg whose best candidate stands
far above the rest knows what it wants; one whose candidates are all alike does not: that is what the weights follow.
Measured against reciprocal rank fusion and constant weights on the sets of tests/bench/retrieval.py.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from app.retrieval import ranking
from app.retrieval.ranking import Matrix, Vector

KEYWORD_DECIDEDNESS: Final = 0.3
"""Keyword scores are zero for most candidates, so their best stands about three times as far out as a cosine does."""
UNREADABLE_WEIGHT: Final = 0.15
"""What is left of the meaning leg's weight for a script that the model cannot read."""
SESSION_WEIGHT: Final = 0.5
SESSION_MEANING_SHARE: Final = 0.15
SESSION_BEST: Final = 2
"""So many of a session's best cosines say what the session means."""
UNRELATED_COSINE: Final = 0.2
"""Texts that have nothing to do with each other stay below."""


@dataclass(frozen=True, slots=True)
class Evidence:
    """What both legs say of the same candidates: scores by words (0: none of them), cosines, which term is where."""

    keyword: Vector
    cosine: Vector
    presence: Matrix
    sessions: Sequence[str | None]


@dataclass(frozen=True, slots=True)
class Fused:
    """Scores to order by, without bounds, and the weight of the meaning leg in them; that of words is the rest."""

    scores: Vector
    meaning_weight: float


def fuse(evidence: Evidence, worth: Vector, *, readable_share: float) -> Fused:
    """Return one score per candidate. `worth` is what each term counts, `readable_share` what the model can read."""
    words, meaning = _normalised(evidence.keyword), _normalised(evidence.cosine)
    weight = _meaning_weight(words, meaning) * (UNREADABLE_WEIGHT + (1 - UNREADABLE_WEIGHT) * readable_share)
    scores = (1 - weight) * words + weight * meaning + SESSION_WEIGHT * _session_scores(evidence, worth)
    return Fused(scores, weight)


def displayed(evidence: Evidence, fused: Fused, order: npt.NDArray[np.intp]) -> Vector:
    """Return scores of 0…1 for the candidates in `order`, never rising along it.

    Unlike the fused scores they mean the same for every query: how much of it is there, and how near it is.
    """
    near = np.clip((evidence.cosine - UNRELATED_COSINE) / (1 - UNRELATED_COSINE), 0.0, 1.0)
    blend = (1 - fused.meaning_weight) * ranking.displayed(evidence.keyword) + fused.meaning_weight * near
    return np.minimum.accumulate(blend[order])


def _normalised(scores: Vector) -> Vector:
    spread = scores.std() if len(scores) else 0.0
    if spread < 1e-9:
        return np.zeros_like(scores)
    normalised: Vector = (scores - scores.mean()) / spread
    return normalised


def _meaning_weight(words: Vector, meaning: Vector) -> float:
    decided_words = KEYWORD_DECIDEDNESS * words.max(initial=0.0)
    decided_meaning = meaning.max(initial=0.0)
    total = float(decided_words + decided_meaning)
    return float(decided_meaning) / total if total > 0 else 0.0


def _session_scores(evidence: Evidence, worth: Vector) -> Vector:
    """How well the session of each candidate answers, as one text; 0 for those without a session."""
    names = sorted({session for session in evidence.sessions if session is not None})
    if len(names) < 2:
        return np.zeros(len(evidence.sessions))
    place = {name: number for number, name in enumerate(names)}
    members: list[list[int]] = [[] for _ in names]
    for candidate, session in enumerate(evidence.sessions):
        if session is not None:
            members[place[session]].append(candidate)
    said = np.array([worth @ (evidence.presence[:, rows] > 0).any(axis=1) for rows in members])
    meant = np.array([np.sort(evidence.cosine[rows])[-SESSION_BEST:].mean() for rows in members])
    scores = (1 - SESSION_MEANING_SHARE) * _normalised(said) + SESSION_MEANING_SHARE * _normalised(meant)
    return np.array([0.0 if session is None else scores[place[session]] for session in evidence.sessions])
