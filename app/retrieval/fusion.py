"""Hybrid ranking: one order from lexical and semantic scores, each weighted by how distinct its best hit is.

Both retrievers score the candidates of both, and their scores are z-normalised over these. A retriever whose best
candidate is far above the rest has found something; one whose candidates are all alike has not: the weights follow
from that.

nDCG@10 on LoCoMo, XQuAD en and zh, JSQuAD and CoSQA, with MiniLM: 0.596, 0.979, 0.971, 0.938, 0.748. The same
candidates by reciprocal rank fusion (Cormack et al., 2009; k = 60): 0.499, 0.969, 0.640, 0.537, 0.681; with a constant
weight of 0.5 and without sessions: 0.580, 0.978, 0.971, 0.938, 0.696.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt

from app.retrieval import ranking
from app.retrieval.calibration import SemanticScores
from app.retrieval.ranking import ScoredDocuments, Vector

LEXICAL_CLARITY: Final = 0.3
"""Lexical scores are zero for most candidates, so their best is about three times as distinct as a cosine."""
UNREADABLE_WEIGHT: Final = 0.15
"""What is left of the semantic weight for a script that the model cannot read."""
QUESTION_PENALTY: Final = 0.4
"""A memory that ends in a question seldom answers one: in a chat, the next message does."""
SESSION_WEIGHT: Final = 0.5
SESSION_SEMANTIC_SHARE: Final = 0.15
SESSION_BEST: Final = 2
"""How many of a session's best cosines make up its semantic score."""


@dataclass(frozen=True, slots=True)
class FusedScores:
    """Unbounded scores to rank by, and the weight of the semantic ones in them; the lexical weight is the rest."""

    scores: Vector
    semantic_weight: float


def fuse(
    lexical: ScoredDocuments,
    semantic: SemanticScores,
    term_weights: Vector,
    *,
    sessions: Sequence[str | None],
    are_questions: Sequence[bool],
) -> FusedScores:
    """Return one score per candidate, given what both retrievers and their sessions say of each.

    `are_questions` says which candidates end in a question.
    """
    lexical_z, semantic_z = _z_scores(lexical.scores), _z_scores(semantic.cosines)
    readable_weight = UNREADABLE_WEIGHT + (1 - UNREADABLE_WEIGHT) * semantic.readable_share
    weight = _semantic_weight(lexical_z, semantic_z) * readable_weight
    session_scores = _session_scores(lexical, semantic, term_weights, sessions)
    scores = (1 - weight) * lexical_z + weight * semantic_z + SESSION_WEIGHT * session_scores
    return FusedScores(scores - QUESTION_PENALTY * np.array(are_questions, float), weight)


def display_scores(
    lexical: ScoredDocuments, semantic: SemanticScores, fused: FusedScores, order: npt.NDArray[np.intp]
) -> Vector:
    """Return scores of 0…1 for the candidates in `order`, never increasing along it.

    Unlike the fused scores they mean the same for every query: how much of it matches, and how similar the memory is.
    """
    semantic_part = fused.semantic_weight * semantic.similarities
    blend = (1 - fused.semantic_weight) * ranking.display_scores(lexical.scores) + semantic_part
    return np.minimum.accumulate(blend[order])


def _z_scores(scores: Vector) -> Vector:
    spread = scores.std() if len(scores) else 0.0
    if spread < 1e-9:
        return np.zeros_like(scores)
    normalised: Vector = (scores - scores.mean()) / spread
    return normalised


def _semantic_weight(lexical_z: Vector, semantic_z: Vector) -> float:
    lexical_clarity = LEXICAL_CLARITY * lexical_z.max(initial=0.0)
    semantic_clarity = semantic_z.max(initial=0.0)
    total = float(lexical_clarity + semantic_clarity)
    return float(semantic_clarity) / total if total > 0 else 0.0


def _session_scores(
    lexical: ScoredDocuments, semantic: SemanticScores, term_weights: Vector, sessions: Sequence[str | None]
) -> Vector:
    """Score the session of each candidate as if it were one text; 0 for candidates without a session."""
    names = sorted({session for session in sessions if session is not None})
    if len(names) < 2:
        return np.zeros(len(sessions))
    index = {name: number for number, name in enumerate(names)}
    members: list[list[int]] = [[] for _ in names]
    for candidate, session in enumerate(sessions):
        if session is not None:
            members[index[session]].append(candidate)
    matched = np.array([term_weights @ (lexical.binary_frequencies[:, each] > 0).any(axis=1) for each in members])
    meant = np.array([np.sort(semantic.cosines[each])[-SESSION_BEST:].mean() for each in members])
    scores = (1 - SESSION_SEMANTIC_SHARE) * _z_scores(matched) + SESSION_SEMANTIC_SHARE * _z_scores(meant)
    return np.array([0.0 if session is None else scores[index[session]] for session in sessions])
