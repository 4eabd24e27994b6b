"""Context: the memories most relevant to a query, formatted for a prompt."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from app.caller import Caller
from app.retrieval import context
from app.services.search import query
from app.services.search.engine import SearchEngine
from app.services.search.query import SearchParams
from app.services.search.results import Hit, SearchResults
from app.store.database import Database
from app.store.fulltext import NO_FILTERS, MemoryFilters
from app.store.records import Memory

MAX_LIMIT: Final = 50
DEFAULT_LIMIT: Final = 10
DEFAULT_MAX_CHARS: Final = 1_500
DEFAULT_MAX_CHARS_PER_MEMORY: Final = 120

RELEVANT_SCORE: Final = 0.2
"""With a lower score, even the best memory shares only a word or two with the query."""
RELEVANT_SHARE: Final = 0.35
"""A memory that scores less than this share of the best one adds noise."""

Format = Literal["block", "sandwich"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextParams:
    """What a client wants context for. Sizes are in code points."""

    project_ids: tuple[str, ...] = ()
    query: str
    limit: int = DEFAULT_LIMIT
    max_chars: int = DEFAULT_MAX_CHARS
    max_chars_per_memory: int = DEFAULT_MAX_CHARS_PER_MEMORY
    min_score: float | None = None
    format: Format = "block"
    language: context.Language = "en"
    filters: MemoryFilters = NO_FILTERS


@dataclass(frozen=True, slots=True)
class PromptContext:
    """The text for the prompt, the memories in it, and how many relevant ones were left out for want of room."""

    context: str
    hits: Sequence[Hit]
    omitted: int
    results: SearchResults

    @property
    def sufficient(self) -> bool:
        """Whether anything relevant was found."""
        return bool(self.hits)


def build(engine: SearchEngine, database: Database, caller: Caller, params: ContextParams) -> PromptContext:
    """Return the most relevant memories as a block of text, which is empty when nothing is relevant enough."""
    # twice the limit, since near-duplicates share a line
    search = SearchParams(
        project_ids=params.project_ids,
        query=params.query,
        limit=min(2 * params.limit, query.MAX_LIMIT),
        filters=params.filters,
    )
    results = engine.search(database, caller, search)
    relevant = _relevant(results, params.min_score)
    block = context.build_block(
        [_entry(hit.memory) for hit in relevant],
        results.terms,
        limit=params.limit,
        max_characters=params.max_chars,
        max_characters_per_memory=params.max_chars_per_memory,
    )
    hits = [relevant[index] for index in block.used]
    is_sandwich = params.format == "sandwich" and bool(hits)
    prompt = context.sandwich(block.text, params.query, params.language) if is_sandwich else block.text
    return PromptContext(prompt, hits, len(relevant) - len(hits), results)


def _relevant(results: SearchResults, min_score: float | None) -> list[Hit]:
    """Return the hits worth a line: with a good score, and not far below the best one."""
    if results.strategy == "filter_only" or not results.hits:
        return []
    threshold = RELEVANT_SCORE if min_score is None else min_score
    return [hit for hit in results.hits if hit.score >= max(threshold, RELEVANT_SHARE * results.hits[0].score)]


def _entry(memory: Memory) -> context.ContextEntry:
    facts = [fact for fact in memory.facts if isinstance(fact, str)]
    passages = [*facts, memory.narrative, memory.text, memory.subtitle]
    return context.ContextEntry(memory.title, tuple(p for p in passages if p and p.strip()), memory.created_at_epoch)
