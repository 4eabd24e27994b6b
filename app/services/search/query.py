"""A search as it was requested, and its query parsed: terms with their statistics in the projects in scope."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import Connection

from app.retrieval import ranking, spelling, text
from app.store.fulltext import NO_FILTERS, CorpusStatistics, FullText, MemoryFilters, SearchScope
from app.store.fulltext.postings import Postings, PostingsCache

MAX_LIMIT: Final = 100
DEFAULT_LIMIT: Final = 20

Mode = Literal["auto", "hybrid", "keyword", "semantic"]
OrderBy = Literal["relevance", "newest", "oldest"]

MAX_CORRECTED_TERMS: Final = 3
CORRECTION_ROWS: Final = 50
"""Corrections of a misspelling come from this many memories that have a word with the same prefix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchParams:
    """What a client searches for. Without projects, the one its key is bound to."""

    project_ids: tuple[str, ...] = ()
    query: str | None = None
    mode: Mode = "auto"
    limit: int = DEFAULT_LIMIT
    cursor: str | None = None
    filters: MemoryFilters = NO_FILTERS
    order_by: OrderBy = "relevance"
    min_score: float | None = None
    explain: bool = False


@dataclass(frozen=True, slots=True)
class Query:
    """A parsed query: its terms with their statistics in the projects in scope, and all else that scoring needs."""

    scope: SearchScope
    filters: MemoryFilters
    statistics: CorpusStatistics
    terms: Sequence[text.Term]
    postings: Sequence[Postings]
    term_weights: ranking.Vector
    half_life_days: float


class QueryParser:
    """Parses queries against one database; keeps the postings of recent terms."""

    def __init__(self, full_text: FullText, *, half_life_days: float) -> None:
        self._full_text = full_text
        self._half_life_days = half_life_days
        self._cache = PostingsCache(full_text)

    def parse(
        self, connection: Connection, scope: SearchScope, terms: Sequence[text.Term], filters: MemoryFilters
    ) -> Query:
        """Return a query for these terms, misspelt ones corrected, with their statistics."""
        statistics = self._full_text.statistics(connection, scope)
        postings = self._postings(connection, scope, statistics, terms)
        if misspelt := _misspelt(terms, postings):
            terms = [self._correct(connection, scope, term) if term in misspelt else term for term in terms]
            postings = self._postings(connection, scope, statistics, terms)
        weights = ranking.term_weights(terms, [each.frequency for each in postings], statistics.memories)
        return Query(scope, filters, statistics, terms, postings, weights, self._half_life_days)

    def _postings(
        self, connection: Connection, scope: SearchScope, statistics: CorpusStatistics, terms: Sequence[text.Term]
    ) -> list[Postings]:
        return self._cache.get(connection, scope, statistics, [term.phrases for term in terms])

    def _correct(self, connection: Connection, scope: SearchScope, term: text.Term) -> text.Term:
        """Return the term for the known words one edit away, or as it is when there are none."""
        seqs = self._full_text.find_by_prefix(connection, scope, spelling.prefix(term) or "", limit=CORRECTION_ROWS)
        known_words = (
            word
            for row in self._full_text.ranking_rows(connection, scope, seqs)
            for word in text.words(f"{row.heading}\n{row.body}")
        )
        return spelling.correct(term, known_words) or term


def _misspelt(terms: Sequence[text.Term], postings: Sequence[Postings]) -> list[text.Term]:
    """Return the first few terms that no memory has and that are long enough to be corrected."""
    unknown = [term for term, each in zip(terms, postings, strict=True) if not (each.frequency or len(each.in_context))]
    return [term for term in unknown if spelling.prefix(term)][:MAX_CORRECTED_TERMS]
