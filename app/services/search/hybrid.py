"""Rankings from candidates: both retrievers fused into one, or either alone. Works on values; reads nothing."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt

from app.retrieval import fusion, ranking
from app.retrieval.calibration import SemanticScores
from app.retrieval.ranking import ScoredDocuments
from app.retrieval.text import is_question
from app.services.search.query import Query
from app.services.search.results import Candidates, Ranking
from app.services.search.semantic import READABLE_SHARE
from app.store.fulltext import RankingRow, Seqs


def fuse(
    query: Query,
    rows: Sequence[RankingRow],
    lexical: ScoredDocuments,
    semantic: SemanticScores,
    lexical_candidates: Candidates,
) -> Ranking:
    """Rank memories, given in ascending order of `seq`, by what both retrievers say of each.

    Below them come the other lexical candidates.
    """
    seqs = np.array([row.seq for row in rows], np.int64)
    fused = fusion.fuse(
        lexical,
        semantic,
        query.term_weights,
        sessions=[row.server_session_id for row in rows],
        are_questions=[is_question(row.ending) for row in rows],
    )
    are_related = semantic.are_related & (semantic.readable_share >= READABLE_SHARE)

    order = _order(query, rows, seqs, fused.scores)
    order = order[(lexical.scores[order] > 0) | are_related[order]]
    scores = fusion.display_scores(lexical, semantic, fused, order)
    rest, rest_scores = _rest(lexical_candidates, seqs, ceiling=scores.min(initial=1.0))
    by_cosine = Candidates.best_first(
        "semantic", seqs[are_related], semantic.cosines[are_related], weight=fused.semantic_weight
    )
    return Ranking(
        np.concatenate([seqs[order], rest]),
        np.concatenate([scores, rest_scores]),
        (replace(lexical_candidates, weight=1 - fused.semantic_weight), by_cosine),
        "hybrid",
        chroma_available=True,
    )


def semantic_only(candidates: Candidates, semantic: SemanticScores) -> Ranking:
    """Rank by similarity the candidates that are related to the query."""
    related = replace(
        candidates, seqs=candidates.seqs[semantic.are_related], scores=candidates.scores[semantic.are_related]
    )
    scores = semantic.similarities[semantic.are_related]
    return Ranking(related.seqs, scores, (related,), "chroma", chroma_available=True)


def lexical_only(candidates: Candidates) -> Ranking:
    """Rank by lexical score."""
    return Ranking(candidates.seqs, ranking.display_scores(candidates.scores), (candidates,), "fts")


def _order(query: Query, rows: Sequence[RankingRow], seqs: Seqs, fused: ranking.Vector) -> npt.NDArray[np.intp]:
    """Return the positions of the rows from best to worst, current memories first among near equals."""
    from_zero = fused - fused.min(initial=0.0)
    adjusted = ranking.prefer_current(
        from_zero, rows, newest_at_epoch=query.statistics.newest_at_epoch, half_life_days=query.half_life_days
    )
    return ranking.order(adjusted, seqs)


def _rest(candidates: Candidates, fused: Seqs, *, ceiling: float) -> tuple[Seqs, ranking.Vector]:
    """Return the lexical candidates that were not fused, in their order, with scores of at most `ceiling`."""
    is_rest = ~np.isin(candidates.seqs, fused)
    return candidates.seqs[is_rest], np.minimum(ranking.display_scores(candidates.scores[is_rest]), ceiling)
