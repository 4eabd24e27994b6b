"""Related memories: those with similar content, and those next to it in its session."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import Connection, tuple_

from app.caller import Caller
from app.retrieval import snippets
from app.services.memories import memories
from app.services.search.engine import SearchEngine
from app.services.search.query import SearchParams
from app.services.search.results import Retriever, SearchResults
from app.store.database import Database
from app.store.models import memory_items
from app.store.records import Memory
from app.store.scope import owned

DEFAULT_LIMIT: Final = 10
MAX_LIMIT: Final = 50

SIMILAR_SHARE: Final = 0.35
"""A memory that scores less than this share of the most similar one shares a word or two, but no subject."""
ADJACENT_SCORE: Final = 0.5
"""The score of the next memory of the session; the second next scores half of it, the third a third."""

Relation = Retriever | Literal["session"]

_POSITION: Final = (memory_items.c.created_at_epoch, memory_items.c.seq)


@dataclass(frozen=True, slots=True)
class Related:
    """A related memory and how it is related; `score` is 0…1 and comparable within one reply."""

    memory: Memory
    score: float
    matched_by: tuple[Relation, ...]
    snippet: str | None


@dataclass(frozen=True, slots=True)
class RelatedResults:
    """The related memories, best first, and the search that found the similar ones."""

    related: Sequence[Related]
    results: SearchResults


def find(engine: SearchEngine, database: Database, caller: Caller, memory_id: str, *, limit: int) -> RelatedResults:
    """Return the memories of the project that are related to one of them. Raises NotFound when it is out of reach.

    Similar ones are found by a hybrid search for its text, by keywords alone without the vector index.
    """
    with database.read() as connection:
        memory = memories.get(connection, caller, memory_id)
        adjacent = _adjacent(connection, caller, memory, limit)
    search = SearchParams(project_ids=(memory.project_id,), query=_full_text(memory), limit=limit + 1)
    results = engine.search(database, caller, search)
    return RelatedResults(_merge(_similar(results, memory), adjacent)[:limit], results)


def _similar(results: SearchResults, memory: Memory) -> list[Related]:
    others = [hit for hit in results.hits if hit.memory.id != memory.id]
    # Adjacent memories are indexed with its very words as context, and would make all others look dissimilar.
    other_sessions = [hit.score for hit in others if not _share_a_session(hit.memory, memory)]
    threshold = SIMILAR_SHARE * max(other_sessions, default=0.0)
    return [Related(hit.memory, hit.score, hit.matched_by, hit.snippet) for hit in others if hit.score >= threshold]


def _share_a_session(one: Memory, other: Memory) -> bool:
    return one.server_session_id is not None and one.server_session_id == other.server_session_id


def _merge(similar: Sequence[Related], adjacent: Sequence[Related]) -> list[Related]:
    merged = {each.memory.id: each for each in similar}
    for each in adjacent:
        known = merged.get(each.memory.id)
        merged[each.memory.id] = _combine(known, each) if known else each
    return sorted(merged.values(), key=lambda each: (-each.score, -each.memory.created_at_epoch, -each.memory.seq))


def _full_text(memory: Memory) -> str:
    lists = [item for item in (*memory.facts, *memory.concepts) if isinstance(item, str)]
    return "\n".join(filter(None, (memory.title, memory.subtitle, memory.narrative, memory.text, *lists)))


def _adjacent(connection: Connection, caller: Caller, memory: Memory, limit: int) -> list[Related]:
    """Return the closest memories of its session before and after it."""
    if memory.server_session_id is None:
        return []
    position, own_position = tuple_(*_POSITION), tuple_(memory.created_at_epoch, memory.seq)
    of_session = owned(memory_items, caller, *memories.COLUMNS).where(
        memory_items.c.server_session_id == memory.server_session_id
    )
    sides = (
        of_session.where(position < own_position).order_by(*(column.desc() for column in _POSITION)).limit(limit),
        of_session.where(position > own_position).order_by(*_POSITION).limit(limit),
    )
    return [
        Related(neighbour, ADJACENT_SCORE / distance, ("session",), snippets.snippet([_full_text(neighbour)], ()))
        for side in sides
        for distance, neighbour in enumerate((Memory(*row) for row in connection.execute(side)), start=1)
    ]


def _combine(similar: Related, adjacent: Related) -> Related:
    """Combine two independent reasons: unrelated is only what neither of them relates (noisy-or)."""
    score = 1 - (1 - similar.score) * (1 - adjacent.score)
    return Related(similar.memory, score, (*similar.matched_by, *adjacent.matched_by), similar.snippet)
