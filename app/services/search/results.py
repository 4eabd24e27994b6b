"""The values a search produces: candidates of each retriever, their ranking, and a page of hits."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np
import numpy.typing as npt

from app.retrieval import ranking, snippets, text
from app.store.fulltext import Seqs
from app.store.records import Memory
from app.vectors import errors

Retriever = Literal["keyword", "semantic"]
Strategy = Literal["hybrid", "chroma", "fts", "filter_only"]
FallbackReason = errors.Reason


@dataclass(frozen=True, slots=True)
class Contribution:
    """How one retriever ranked a memory: its rank (from 1) and score there, and the retriever's weight."""

    retriever: Retriever
    rank: int
    score: float
    weight: float


@dataclass(frozen=True, slots=True)
class Candidates:
    """Memories that one retriever found, best first, with its own scores, and its weight in the fused ranking."""

    retriever: Retriever
    seqs: Seqs
    scores: ranking.Vector
    weight: float = 1.0

    @classmethod
    def best_first(
        cls, retriever: Retriever, seqs: Seqs, scores: ranking.Vector, *, weight: float = 1.0
    ) -> "Candidates":
        """Sort memories by their scores."""
        order = ranking.order(scores, seqs)
        return cls(retriever, seqs[order], scores[order], weight)

    def contributions(self, seqs: Seqs) -> dict[int, Contribution]:
        """Return how this retriever ranked those of the memories that it found, by `seq`."""
        return {
            int(self.seqs[index]): Contribution(self.retriever, index + 1, float(self.scores[index]), self.weight)
            for index in np.flatnonzero(np.isin(self.seqs, seqs)).tolist()
        }


@dataclass(frozen=True, slots=True)
class Ranking:
    """Everything that matches, best first, with scores of 0…1; which retrievers found it, and why not both."""

    seqs: Seqs
    scores: ranking.Vector
    candidates: tuple[Candidates, ...]
    strategy: Strategy
    chroma_available: bool = False
    fallback_reason: FallbackReason | None = None
    notice: str | None = None

    def take(self, positions: npt.NDArray[np.intp]) -> "Ranking":
        """Return the matches at these positions, in this order."""
        return replace(self, seqs=self.seqs[positions], scores=self.scores[positions])


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory that matches, with its score of 0…1, comparable within one reply; `contributions` only on request."""

    memory: Memory
    score: float
    matched_by: tuple[Retriever, ...]
    terms: Sequence[text.Term] = ()
    contributions: tuple[Contribution, ...] = ()

    @property
    def snippet(self) -> str | None:
        """The passage of its text that matches best."""
        return snippets.snippet(_passages(self.memory), self.terms)


@dataclass(frozen=True, slots=True)
class SearchResults:
    """One page of hits, how they were found, and the terms searched for, after correction."""

    hits: Sequence[Hit]
    strategy: Strategy
    next_cursor: str | None
    chroma_available: bool = False
    fallback_reason: FallbackReason | None = None
    notice: str | None = None
    terms: Sequence[text.Term] = ()
    duration_ms: int = 0

    @property
    def degraded(self) -> bool:
        """Whether the vector index should have been searched and could not, or not completely."""
        return self.fallback_reason is not None


def _passages(memory: Memory) -> list[str | None]:
    lists = ["\n".join(item for item in listed if isinstance(item, str)) for listed in (memory.facts, memory.concepts)]
    return [memory.narrative, memory.text, lists[0], memory.title, memory.subtitle, lists[1]]
