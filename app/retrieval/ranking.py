"""Lexical relevance: how well the words of a memory answer a query. One ranker for every database.

Owns the formula and its constants, and knows nothing of tables. Every statistic is of the projects in scope alone.

The score is BM25F (Robertson and Zaragoza, 2009), adapted to short memories. Where a project holds chat messages, term
frequency is binary and length is ignored; where it holds passages or code, frequency and length count in full.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt

from app.retrieval import text

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Seqs = npt.NDArray[np.int64]

FREQUENCY_SATURATION: Final = 1.2
LENGTH_WEIGHT: Final = 0.75
SHORT_TOKENS: Final = 30.0
"""Memories that average fewer tokens are ranked by binary term frequency."""
LONG_TOKENS: Final = 45.0
"""Memories that average more tokens are ranked with full frequency saturation and length normalisation."""
MIN_FULLNESS: Final = 0.1
"""With short memories, frequency and length still break ties."""
IDF_POWER: Final = 1.2
SMOOTHING_PRIOR: Final = 20
"""Few memories say little about how rare a term is, so this many more without it are assumed."""
NEIGHBOUR_WEIGHT: Final = 0.45
"""What a term counts that occurs only in the context text, from adjacent messages of the session."""
HEADING_BONUS: Final = 0.25
COORDINATION: Final = 0.6
"""The share of a score that depends on how much of the query matches at all."""
ADJACENCY_WEIGHT: Final = 0.15
RECENCY_WEIGHT: Final = 0.01
SUPERSEDED_WEIGHT: Final = 0.5

DAY_MS: Final = 86_400_000

# The same memories are scored for many queries. The text itself is the key, so no entry can be stale.
_marked = functools.lru_cache(maxsize=4_096)(text.marked)


class RankableDocument(Protocol):
    """What the ranker reads of a memory. Texts may be truncated; `characters` is the full length of its own text."""

    @property
    def heading(self) -> str:
        """Title, subtitle and the like."""

    @property
    def body(self) -> str:
        """Its text."""

    @property
    def context_text(self) -> str:
        """The text of adjacent messages of its session."""

    @property
    def characters(self) -> int:
        """The full length of its own text."""


class MemoryVersion(Protocol):
    """What decides between equally relevant memories: their age (epoch ms) and which one replaced which."""

    @property
    def id(self) -> str:
        """The memory's id."""

    @property
    def created_at_epoch(self) -> int:
        """When it was made (epoch ms)."""

    @property
    def superseded_by(self) -> str | None:
        """The id of the memory that replaced it."""


@dataclass(frozen=True, slots=True)
class ScoredDocuments:
    """Lexical scores, and the binary term frequencies (terms × documents: 1 where the document has the term)."""

    scores: Vector
    binary_frequencies: Matrix


def term_weights(terms: Sequence[text.Term], frequencies: Sequence[int], memories: int) -> Vector:
    """Return the weight of each term: its weight in the query times its IDF in the projects in scope."""
    absences = [max(memories - frequency, 0) + SMOOTHING_PRIOR for frequency in frequencies]
    idf = [
        math.log(1 + (absent + 0.5) / (frequency + 0.5))
        for absent, frequency in zip(absences, frequencies, strict=True)
    ]
    return np.array([term.weight * value**IDF_POWER for term, value in zip(terms, idf, strict=True)])


def score_binary(weights: Vector, own: Matrix, neighbours: Matrix) -> Vector:
    """Score memories by binary term frequency (terms × memories, 0 or 1), of their own and of their context text."""
    return _weighted_sum(weights, own + NEIGHBOUR_WEIGHT * (neighbours * (own == 0)), own + neighbours)


def score_documents(
    terms: Sequence[text.Term],
    weights: Vector,
    own: Matrix,
    neighbours: Matrix,
    documents: Sequence[RankableDocument],
    *,
    average_characters: float,
) -> ScoredDocuments:
    """Score documents by their term frequencies; a term that the index matched counts at least once.

    `own` and `neighbours` are what the index matched (terms × documents, 0 or 1), in their own and context text.
    """
    patterns = [term.patterns for term in terms]
    headings = [_marked(document.heading) for document in documents]
    bodies = [_marked(document.body) for document in documents]
    in_heading = _count_terms(patterns, headings)
    frequency = np.maximum(in_heading + _count_terms(patterns, bodies), own)
    in_context = np.maximum(
        _count_terms(patterns, [_marked(document.context_text) for document in documents]), neighbours
    )
    texts = [heading + body for heading, body in zip(headings, bodies, strict=True)]
    tokens_read = np.array([each.count("<") for each in texts], float)
    characters_read = np.array([max(len(document.heading) + len(document.body), 1) for document in documents], float)
    tokens = np.maximum(tokens_read, 1) * np.array([document.characters for document in documents]) / characters_read
    average_tokens = average_characters * tokens_read.sum() / max(characters_read.sum(), 1)
    contribution = _saturate(frequency, tokens, average_tokens=average_tokens)
    contribution *= 1 + HEADING_BONUS * (in_heading > 0)
    contribution += NEIGHBOUR_WEIGHT * ((frequency == 0) & (in_context > 0))
    scores = _weighted_sum(weights, contribution, frequency + in_context) + _adjacency_bonus(terms, weights, texts)
    return ScoredDocuments(scores, (frequency > 0).astype(float))


def prefer_current(
    scores: Vector, versions: Sequence[MemoryVersion], *, newest_at_epoch: int, half_life_days: float
) -> Vector:
    """Break near ties by age, by at most `RECENCY_WEIGHT`, and rank a superseded memory below its replacement."""
    age_days = np.array([max(newest_at_epoch - version.created_at_epoch, 0) for version in versions]) / DAY_MS
    scores = scores * (1 - RECENCY_WEIGHT + RECENCY_WEIGHT * 0.5 ** (age_days / half_life_days))
    score_by_id = {version.id: float(score) for version, score in zip(versions, scores, strict=True)}
    ceilings = [score_by_id.get(version.superseded_by or "", math.inf) for version in versions]
    is_superseded = np.array([version.superseded_by is not None for version in versions])
    return np.where(is_superseded, np.minimum(scores, np.array(ceilings)) * SUPERSEDED_WEIGHT, scores)


def order(scores: Vector, seqs: Seqs) -> npt.NDArray[np.intp]:
    """Return the positions from best to worst; among equals, the later memory first."""
    return np.lexsort((-seqs, -scores))


def display_scores(scores: Vector) -> Vector:
    """Map unbounded scores to 0…1, in the same order."""
    return -np.expm1(-1.5 * np.maximum(scores, 0.0))


def _weighted_sum(weights: Vector, contribution: Matrix, matched: Matrix) -> Vector:
    total = weights.sum()
    if total <= 0:
        return np.zeros(contribution.shape[1])
    coverage: Vector = weights @ (matched > 0) / total
    scores: Vector = weights @ contribution / total * (1 - COORDINATION + COORDINATION * coverage)
    return scores


def _saturate(frequency: Matrix, tokens: Vector, *, average_tokens: float) -> Matrix:
    fullness = min(max((average_tokens - SHORT_TOKENS) / (LONG_TOKENS - SHORT_TOKENS), MIN_FULLNESS), 1.0)
    saturation, length_weight = FREQUENCY_SATURATION * fullness, LENGTH_WEIGHT * fullness
    norm = saturation * (1 - length_weight + length_weight * tokens / max(average_tokens, 1.0))
    return np.where(frequency > 0, frequency * (1 + saturation) / np.maximum(frequency + norm, 1e-9), 0.0)


def _adjacency_bonus(terms: Sequence[text.Term], weights: Vector, marked: Sequence[str]) -> Vector:
    """Reward words that are adjacent both in the query and in the memory, in either order."""
    bonus = np.zeros(len(marked))
    for position, (first, second) in enumerate(pairwise(terms)):
        if min(first.weight, second.weight) == 1:
            forwards, backwards = (a + b for a, b in permutations((first.patterns[0], second.patterns[0])))
            is_adjacent = np.array([forwards in document or backwards in document for document in marked])
            bonus += is_adjacent * min(weights[position], weights[position + 1])
    scaled: Vector = ADJACENCY_WEIGHT * bonus / max(weights.sum(), 1e-9)
    return scaled


def _count_terms(patterns: Sequence[tuple[str, ...]], marked: Sequence[str]) -> Matrix:
    counts = np.zeros((len(patterns), len(marked)))
    for row, term in zip(counts, patterns, strict=True):
        for pattern in term:
            np.maximum(row, [document.count(pattern) for document in marked], out=row)
    return counts
