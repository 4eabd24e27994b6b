"""What a search returns: the candidates of each retriever, their ranking, and a page of hits with its cursor."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, bindparam

from app.caller import Caller
from app.errors import Invalid
from app.retrieval import snippets, text
from app.retrieval.ranking import Vector, order
from app.services.search.query import SearchParams
from app.services.shared import paging
from app.store.fulltext import Seqs
from app.store.models import memory_items
from app.store.prepared import PreparedStatement
from app.store.records import Memory, columns
from app.store.scope import owned_template, parameters
from app.vectors import errors

Retriever = Literal["keyword", "semantic"]
Strategy = Literal["hybrid", "chroma", "fts", "filter_only"]
FallbackReason = errors.Reason

# One at a time: given many keys at once, SQLite scans all memories of the team instead.
_BY_SEQ: Final = PreparedStatement(
    owned_template(memory_items, *columns(memory_items, Memory)).where(memory_items.c.seq == bindparam("seq")), Memory
)


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
    scores: Vector
    weight: float = 1.0

    @classmethod
    def best_first(cls, retriever: Retriever, seqs: Seqs, scores: Vector, *, weight: float = 1.0) -> "Candidates":
        """Sort memories by their scores."""
        positions = order(scores, seqs)
        return cls(retriever, seqs[positions], scores[positions], weight)

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
    scores: Vector
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


def read_page(
    connection: Connection, caller: Caller, params: SearchParams, terms: Sequence[text.Term], ranking: Ranking
) -> SearchResults:
    """Read one page of a ranking. Raises Invalid for a cursor of another search."""
    bound_to = paging.binding(
        caller,
        ["search", params.project_ids, params.query, params.mode, params.filters, params.order_by, params.min_score],
    )
    seqs = ranking.seqs.tolist()
    start = 0 if params.cursor is None else _resume(seqs, paging.decode(params.cursor, bound_to))
    end = start + params.limit
    by_retriever = [candidates.contributions(ranking.seqs[start:end]) for candidates in ranking.candidates]
    hits = []
    for seq, score in zip(seqs[start:end], ranking.scores[start:end].tolist(), strict=True):
        if (memory := _BY_SEQ.first(connection, {**parameters(caller), "seq": seq})) is not None:
            contributions = tuple(by_seq[seq] for by_seq in by_retriever if seq in by_seq)
            matched_by = tuple(contribution.retriever for contribution in contributions)
            hits.append(Hit(memory, score, matched_by, terms, contributions if params.explain else ()))
    return SearchResults(
        hits,
        ranking.strategy,
        paging.encode(paging.Cursor([end, seqs[end - 1]], bound_to)) if end < len(seqs) else None,
        chroma_available=ranking.chroma_available,
        fallback_reason=ranking.fallback_reason,
        notice=ranking.notice,
        terms=terms,
    )


def _resume(seqs: Sequence[int], cursor: Sequence[Any]) -> int:
    """Return where to continue: after the last memory shown, or, if it no longer matches, where it would be."""
    if [type(value) for value in cursor] != [int, int]:
        raise Invalid.field("cursor", "not a cursor of this search")
    offset: int
    offset, last_seq = cursor
    return seqs.index(last_seq) + 1 if last_seq in seqs else offset


def _passages(memory: Memory) -> list[str | None]:
    lists = ["\n".join(item for item in listed if isinstance(item, str)) for listed in (memory.facts, memory.concepts)]
    return [memory.narrative, memory.text, lists[0], memory.title, memory.subtitle, lists[1]]
