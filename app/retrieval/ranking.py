"""How good an answer a memory is to a query, by its words: one ranker for every database.

Owns the formula and its constants. Knows nothing of tables; every statistic it uses is of the asked projects alone.

The score is BM25F (Robertson and Zaragoza, 2009) with what short memories need: where a project holds turns of a chat,
a word is either there or not, and length says nothing; where it holds passages or code, frequency and length count.
"""

import functools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise, permutations
from typing import Final

import numpy as np
import numpy.typing as npt

from app.retrieval import text

Vector = npt.NDArray[np.float64]
Matrix = npt.NDArray[np.float64]
Seqs = npt.NDArray[np.int64]

FREQUENCY_SATURATION: Final = 1.2
LENGTH_WEIGHT: Final = 0.75
SHORT_TOKENS: Final = 30.0
"""Memories that average fewer tokens are ranked by presence alone."""
LONG_TOKENS: Final = 45.0
"""Memories that average more tokens are ranked by frequency and length in full."""
LEAST_FULLNESS: Final = 0.1
"""Even there frequency and length break ties."""
RARITY_POWER: Final = 1.2
IMAGINED_MEMORIES: Final = 20
"""A few memories say little about how rare a word is: as many without it are imagined beside them."""
NEIGHBOUR_WEIGHT: Final = 0.45
HEADING_BONUS: Final = 0.25
COORDINATION: Final = 0.6
"""The share of a score that depends on how much of the query is there at all."""
ADJACENCY_WEIGHT: Final = 0.15
RECENCY_WEIGHT: Final = 0.01
SUPERSEDED_WEIGHT: Final = 0.5

DAY_MS: Final = 86_400_000

# the same memories are read for many queries; a text is its own key, so nothing can be out of date
_marked = functools.lru_cache(maxsize=4_096)(text.marked)


@dataclass(frozen=True, slots=True)
class Document:
    """What the ranker reads of a memory. Texts may be cut; `characters` is the whole length of its own text."""

    heading: str
    body: str
    neighbours: str
    characters: int


@dataclass(frozen=True, slots=True)
class Judged:
    """What documents are worth by their words, and which term stands in which (terms by documents)."""

    scores: Vector
    presence: Matrix


@dataclass(frozen=True, slots=True)
class Place:
    """What decides between equally good answers. Times are epoch milliseconds."""

    id: str
    created_at_epoch: int
    superseded_by: str | None


def weights(terms: Sequence[text.Term], frequencies: Sequence[int], memories: int) -> Vector:
    """Return what each term is worth: its weight in the query times its rarity in the asked projects."""
    without = [max(memories - found, 0) + IMAGINED_MEMORIES for found in frequencies]
    rarity = [math.log(1 + (absent + 0.5) / (found + 0.5)) for absent, found in zip(without, frequencies, strict=True)]
    return np.array([term.weight * value**RARITY_POWER for term, value in zip(terms, rarity, strict=True)])


def by_presence(worth: Vector, own: Matrix, neighbours: Matrix) -> Vector:
    """Score memories by which terms they hold (`own[term, memory]` is 0 or 1): what an average one gets."""
    return _weighted(worth, own + NEIGHBOUR_WEIGHT * (neighbours * (own == 0)), own + neighbours)


def by_frequency(
    terms: Sequence[text.Term],
    worth: Vector,
    own: Matrix,
    neighbours: Matrix,
    documents: Sequence[Document],
    *,
    average_characters: float,
) -> Judged:
    """Score documents by how often they hold which term; one that the index found counts at least once."""
    patterns = [term.patterns for term in terms]
    headings = [_marked(document.heading) for document in documents]
    bodies = [_marked(document.body) for document in documents]
    in_heading = _counts(patterns, headings)
    frequency = np.maximum(in_heading + _counts(patterns, bodies), own)
    beside = np.maximum(_counts(patterns, [_marked(document.neighbours) for document in documents]), neighbours)
    wholes = [heading + body for heading, body in zip(headings, bodies, strict=True)]
    seen = np.array([whole.count("<") for whole in wholes], float)
    read = np.array([max(len(document.heading) + len(document.body), 1) for document in documents], float)
    tokens = np.maximum(seen, 1) * np.array([document.characters for document in documents]) / read
    contribution = _saturated(frequency, tokens, average_tokens=average_characters * seen.sum() / max(read.sum(), 1))
    contribution *= 1 + HEADING_BONUS * (in_heading > 0)
    contribution += NEIGHBOUR_WEIGHT * ((frequency == 0) & (beside > 0))
    scores = _weighted(worth, contribution, frequency + beside) + _adjacency(terms, worth, wholes)
    return Judged(scores, (frequency > 0).astype(float))


def prefer_current(scores: Vector, places: Sequence[Place], *, newest_at_epoch: int, half_life_days: float) -> Vector:
    """Break near ties by age, bounded by `RECENCY_WEIGHT`, and put what was replaced below what replaced it."""
    age_days = np.array([max(newest_at_epoch - place.created_at_epoch, 0) for place in places]) / DAY_MS
    scores = scores * (1 - RECENCY_WEIGHT + RECENCY_WEIGHT * 0.5 ** (age_days / half_life_days))
    score_by_id = {place.id: float(score) for place, score in zip(places, scores, strict=True)}
    ceilings = [score_by_id.get(place.superseded_by or "", math.inf) for place in places]
    replaced = np.array([place.superseded_by is not None for place in places])
    return np.where(replaced, np.minimum(scores, np.array(ceilings)) * SUPERSEDED_WEIGHT, scores)


def order(scores: Vector, seqs: Seqs) -> npt.NDArray[np.intp]:
    """Return the positions from best to worst; of equal ones the later memory first."""
    return np.lexsort((-seqs, -scores))


def displayed(scores: Vector) -> Vector:
    """Map scores without bound to 0…1, in the same order."""
    return -np.expm1(-1.5 * np.maximum(scores, 0.0))


def _weighted(worth: Vector, contribution: Matrix, presence: Matrix) -> Vector:
    whole = worth.sum()
    if whole <= 0:
        return np.zeros(contribution.shape[1])
    covered: Vector = worth @ (presence > 0) / whole
    scores: Vector = worth @ contribution / whole * (1 - COORDINATION + COORDINATION * covered)
    return scores


def _saturated(frequency: Matrix, tokens: Vector, *, average_tokens: float) -> Matrix:
    fullness = min(max((average_tokens - SHORT_TOKENS) / (LONG_TOKENS - SHORT_TOKENS), LEAST_FULLNESS), 1.0)
    saturation, length_weight = FREQUENCY_SATURATION * fullness, LENGTH_WEIGHT * fullness
    norm = saturation * (1 - length_weight + length_weight * tokens / max(average_tokens, 1.0))
    return np.where(frequency > 0, frequency * (1 + saturation) / np.maximum(frequency + norm, 1e-9), 0.0)


def _adjacency(terms: Sequence[text.Term], worth: Vector, marked: Sequence[str]) -> Vector:
    """Reward words that stand side by side in the query and in the memory, in either order."""
    bonus = np.zeros(len(marked))
    for place, (first, second) in enumerate(pairwise(terms)):
        if min(first.weight, second.weight) == 1:
            forwards, backwards = (a + b for a, b in permutations((first.patterns[0], second.patterns[0])))
            together = np.array([forwards in document or backwards in document for document in marked])
            bonus += together * min(worth[place], worth[place + 1])
    scaled: Vector = ADJACENCY_WEIGHT * bonus / max(worth.sum(), 1e-9)
    return scaled


def _counts(patterns: Sequence[tuple[str, ...]], marked: Sequence[str]) -> Matrix:
    counted = np.zeros((len(patterns), len(marked)))
    for row, term in zip(counted, patterns, strict=True):
        for pattern in term:
            np.maximum(row, [document.count(pattern) for document in marked], out=row)
    return counted
