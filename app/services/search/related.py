"""What belongs to a memory: others that say similar things, and what stands beside it in its session."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Literal

from sqlalchemy import Connection, tuple_

from app.caller import Caller
from app.retrieval import snippets
from app.services.memories import memories
from app.services.search import engine, results
from app.services.search.engine import Found, Searching
from app.store.database import Database
from app.store.models import memory_items
from app.store.records import Memory
from app.store.scope import owned

DEFAULT_LIMIT: Final = 10
MAX_LIMIT: Final = 50

SIMILAR_SHARE: Final = 0.35
"""What is less than so much as similar as the most similar one shares a word or two, and no subject."""
BESIDE_SCORE: Final = 0.5
"""What standing next to it in the session is worth; the second next half of it, the third a third."""

Why = results.Leg | Literal["session"]

_PLACE: Final = (memory_items.c.created_at_epoch, memory_items.c.seq)


@dataclass(frozen=True, slots=True)
class Related:
    """A memory and why it belongs to the other; `score` is 0…1 and compares within one reply."""

    memory: Memory
    score: float
    matched_by: tuple[Why, ...]
    snippet: str | None


@dataclass(frozen=True, slots=True)
class Relations:
    """The related memories, best first, and the search that found those that say similar things."""

    related: Sequence[Related]
    found: Found


def to(searching: Searching, database: Database, caller: Caller, memory_id: str, *, limit: int) -> Relations:
    """Return what is related to a memory within its project, never itself; NotFound when it is out of reach.

    Similar is what a search for its text finds: by meaning and words, by words alone without the vector index.
    """
    with database.read() as connection:
        memory = memories.get(connection, caller, memory_id)
        beside = _beside(connection, caller, memory, limit)
    question = engine.Asked(project_ids=(memory.project_id,), query=_said(memory), limit=limit + 1)
    found = searching.search(database, caller, question)
    return Relations(_joined(_similar(found, memory), beside)[:limit], found)


def _similar(found: Found, memory: Memory) -> list[Related]:
    others = [hit for hit in found.hits if hit.memory.id != memory.id]
    # what stands beside it has been lent its very words, and would make everything else look far
    elsewhere = [hit.score for hit in others if not _share_a_session(hit.memory, memory)]
    least = SIMILAR_SHARE * max(elsewhere, default=0.0)
    return [Related(hit.memory, hit.score, hit.matched_by, hit.snippet) for hit in others if hit.score >= least]


def _share_a_session(one: Memory, other: Memory) -> bool:
    return one.server_session_id is not None and one.server_session_id == other.server_session_id


def _joined(similar: Sequence[Related], beside: Sequence[Related]) -> list[Related]:
    joined = {each.memory.id: each for each in similar}
    for each in beside:
        known = joined.get(each.memory.id)
        joined[each.memory.id] = _both(known, each) if known else each
    return sorted(joined.values(), key=lambda each: (-each.score, -each.memory.created_at_epoch, -each.memory.seq))


def _said(memory: Memory) -> str:
    lists = [item for item in (*memory.facts, *memory.concepts) if isinstance(item, str)]
    return "\n".join(filter(None, (memory.title, memory.subtitle, memory.narrative, memory.text, *lists)))


def _beside(connection: Connection, caller: Caller, memory: Memory, limit: int) -> list[Related]:
    """Return the nearest memories of the session in both directions."""
    if memory.server_session_id is None:
        return []
    place, here = tuple_(*_PLACE), tuple_(memory.created_at_epoch, memory.seq)
    of_session = owned(memory_items, caller, *memories.COLUMNS).where(
        memory_items.c.server_session_id == memory.server_session_id
    )
    sides = (
        of_session.where(place < here).order_by(*(column.desc() for column in _PLACE)).limit(limit),
        of_session.where(place > here).order_by(*_PLACE).limit(limit),
    )
    return [
        Related(near, BESIDE_SCORE / distance, ("session",), snippets.snippet([_said(near)], ()))
        for side in sides
        for distance, near in enumerate((Memory(*row) for row in connection.execute(side)), start=1)
    ]


def _both(similar: Related, beside: Related) -> Related:
    """Put two independent reasons together: what neither of them speaks for is left out (noisy or)."""
    score = 1 - (1 - similar.score) * (1 - beside.score)
    return Related(similar.memory, score, (*similar.matched_by, *beside.matched_by), similar.snippet)
