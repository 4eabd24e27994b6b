"""Context: what the memories say about a question, ready to be put into a prompt."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from app.caller import Caller
from app.retrieval import context
from app.services.search import engine
from app.services.search.engine import Found, Hit, Searching
from app.store.database import Database
from app.store.fulltext import NO_FILTERS, Filters
from app.store.records import Memory

MAX_LIMIT: Final = 50
DEFAULT_LIMIT: Final = 10
DEFAULT_MAX_CHARS: Final = 1_500
DEFAULT_MAX_CHARS_PER_MEMORY: Final = 120

RELEVANT_SCORE: Final = 0.2
"""Below it even the best memory only shares a word or two with the question."""
RELEVANT_SHARE: Final = 0.35
"""A memory that scores less than this share of the best one adds noise."""

Format = Literal["block", "sandwich"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A context as it was asked for; sizes are in code points."""

    project_ids: tuple[str, ...] = ()
    query: str
    limit: int = DEFAULT_LIMIT
    max_chars: int = DEFAULT_MAX_CHARS
    max_chars_per_memory: int = DEFAULT_MAX_CHARS_PER_MEMORY
    min_score: float | None = None
    format: Format = "block"
    language: context.Language = "en"
    filters: Filters = NO_FILTERS


@dataclass(frozen=True, slots=True)
class Told:
    """The text for the prompt, the memories it is made of, and how many relevant ones found no place in it."""

    context: str
    hits: Sequence[Hit]
    omitted: int
    found: Found

    @property
    def sufficient(self) -> bool:
        """Say whether anything relevant is known."""
        return bool(self.hits)


def tell(searching: Searching, database: Database, caller: Caller, asked: Asked) -> Told:
    """Return the block of the most relevant memories; an empty text when nothing is relevant enough."""
    # twice the limit, since memories that say the same take one line together
    question = engine.Asked(
        project_ids=asked.project_ids,
        query=asked.query,
        limit=min(2 * asked.limit, engine.MAX_LIMIT),
        filters=asked.filters,
    )
    found = searching.search(database, caller, question)
    relevant = _relevant(found, asked.min_score)
    block = context.block(
        [_entry(hit.memory) for hit in relevant],
        found.terms,
        limit=asked.limit,
        max_characters=asked.max_chars,
        max_characters_per_memory=asked.max_chars_per_memory,
    )
    hits = [relevant[place] for place in block.used]
    whole = context.sandwich(block.text, asked.query, asked.language) if asked.format == "sandwich" and hits else ""
    return Told(whole or block.text, hits, len(relevant) - len(hits), found)


def _relevant(found: Found, min_score: float | None) -> list[Hit]:
    """Return the hits that are worth a line: good in themselves, and not far behind the best."""
    if found.strategy == "filter_only" or not found.hits:
        return []
    least = RELEVANT_SCORE if min_score is None else min_score
    return [hit for hit in found.hits if hit.score >= max(least, RELEVANT_SHARE * found.hits[0].score)]


def _entry(memory: Memory) -> context.Entry:
    facts = [fact for fact in memory.facts if isinstance(fact, str)]
    passages = [*facts, memory.narrative, memory.text, memory.subtitle]
    return context.Entry(memory.title, tuple(p for p in passages if p and p.strip()), memory.created_at_epoch)
