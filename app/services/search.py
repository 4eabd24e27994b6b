"""Search: the memories that answer a question, best first, read through the caller's scope."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import numpy.typing as npt
import structlog
from sqlalchemy import Connection, bindparam

from app.caller import Caller
from app.errors import Invalid
from app.retrieval import ranking, snippets, text
from app.services import listing, paging, platforms, projects
from app.services.keyword_leg import KeywordLeg, Ranked
from app.store.fulltext import NO_FILTERS, Filters, FullText, Scope, Seqs
from app.store.models import memory_items
from app.store.prepared import Prepared
from app.store.records import Memory, columns
from app.store.scope import owned_template, parameters

_log = structlog.get_logger(__name__)

MAX_LIMIT: Final = 100
DEFAULT_LIMIT: Final = 20

Mode = Literal["auto", "hybrid", "keyword", "semantic"]
OrderBy = Literal["relevance", "newest", "oldest"]
Leg = Literal["keyword", "semantic"]
Strategy = Literal["hybrid", "chroma", "fts", "filter_only"]
FallbackReason = Literal[
    "chroma_connection",
    "chroma_error",
    "chroma_not_initialized",
    "chroma_timeout",
    "embedder_error",
    "index_behind",
]

# one by one: asked for many at once, SQLite walks the whole team instead
_BY_SEQ: Final = Prepared(
    owned_template(memory_items, *columns(memory_items, Memory)).where(memory_items.c.seq == bindparam("seq")), Memory
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A search as it was asked for. No project named means the credential's own."""

    project_ids: tuple[str, ...] = ()
    query: str | None = None
    mode: Mode = "auto"
    limit: int = DEFAULT_LIMIT
    cursor: str | None = None
    filters: Filters = NO_FILTERS
    order_by: OrderBy = "relevance"
    min_score: float | None = None
    explain: bool = False


@dataclass(frozen=True, slots=True)
class Share:
    """What one leg said of a memory: its rank (from 1), its own score, and its weight in the whole."""

    leg: Leg
    rank: int
    score: float
    weight: float


@dataclass(frozen=True, slots=True)
class Hit:
    """A memory that was found. `score` is 0…1 and compares within one reply; `shares` are there when asked for."""

    memory: Memory
    score: float
    matched_by: tuple[Leg, ...]
    snippet: str | None
    shares: tuple[Share, ...] = ()


@dataclass(frozen=True, slots=True)
class _Voice:
    """A leg's own ranking, and its weight in the whole."""

    leg: Leg
    weight: float
    ranked: Ranked

    def share(self, seq: int) -> Share | None:
        """Return what the leg said of a memory, None when it did not find it."""
        places = np.flatnonzero(self.ranked.seqs == seq)
        if not len(places):
            return None
        return Share(self.leg, int(places[0]) + 1, float(self.ranked.scores[places[0]]), self.weight)


@dataclass(frozen=True, slots=True)
class _Ranking:
    """Everything that was found, in the order to show it, with scores of 0…1."""

    seqs: Seqs
    scores: ranking.Vector
    voices: tuple[_Voice, ...]

    def only(self, places: npt.NDArray[np.intp]) -> "_Ranking":
        """Return the ranking of those places, in that order."""
        return replace(self, seqs=self.seqs[places], scores=self.scores[places])


@dataclass(frozen=True, slots=True)
class Found:
    """One page of a search, and how it came about."""

    hits: Sequence[Hit]
    strategy: Strategy
    next_cursor: str | None
    degraded: bool = False
    chroma_available: bool = False
    fallback_reason: FallbackReason | None = None
    notice: str | None = None
    duration_ms: int = 0


class Searching:
    """The search of one database, with what it remembers between requests."""

    def __init__(self, full_text: FullText, *, recency_half_life_days: float) -> None:
        self._full_text = full_text
        self._keyword = KeywordLeg(full_text, half_life_days=recency_half_life_days)

    def search(self, connection: Connection, caller: Caller, asked: Asked) -> Found:
        """Return a page of what answers the query within the filters; without a query, the filtered rows by time.

        Raises Invalid without both and for a foreign cursor, Forbidden for projects out of reach.
        """
        started = time.perf_counter()
        asked = _within_reach(connection, caller, asked)
        found = self._answer(connection, caller, asked)
        found = replace(found, duration_ms=round((time.perf_counter() - started) * 1000))
        _log.info(
            "search_performed",
            count=len(found.hits),
            strategy=found.strategy,
            chroma_available=found.chroma_available,
            reason=found.fallback_reason,
            duration_ms=found.duration_ms,
        )
        return found

    def _answer(self, connection: Connection, caller: Caller, asked: Asked) -> Found:
        if asked.query is None and not asked.filters:
            raise Invalid.field("query", "a query or a filter is needed")
        if not (asked.query or "").strip():
            return _filtered(connection, caller, asked) if asked.filters else Found([], "fts", None)
        scope = Scope(caller.team_id or "", asked.project_ids)
        found = self._keyword.search(connection, scope, text.terms(asked.query or ""), asked.filters)
        ranked = _by_words_alone(found)
        if asked.min_score is not None:
            ranked = ranked.only(np.flatnonzero(ranked.scores >= asked.min_score))
        if asked.order_by != "relevance":
            ranked = self._by_time(connection, scope, ranked, oldest_first=asked.order_by == "oldest")
        hits, next_cursor = _page(connection, caller, asked, found.terms, ranked)
        return Found(hits, "fts", next_cursor)

    def _by_time(self, connection: Connection, scope: Scope, ranked: _Ranking, *, oldest_first: bool) -> _Ranking:
        places = {seq: place for place, seq in enumerate(ranked.seqs.tolist())}
        oldest = [places[seq] for seq in self._full_text.by_time(connection, scope, list(places))]
        return ranked.only(np.array(oldest if oldest_first else oldest[::-1], np.intp))


def _by_words_alone(ranked: Ranked) -> _Ranking:
    return _Ranking(ranked.seqs, ranking.displayed(ranked.scores), (_Voice("keyword", 1.0, ranked),))


def _within_reach(connection: Connection, caller: Caller, asked: Asked) -> Asked:
    project_ids = asked.project_ids or ((caller.project_id,) if caller.project_id else ())
    if not project_ids:
        raise Invalid.field("projectId", "name a project, or use a key that is bound to one")
    for project_id in project_ids:
        projects.require(connection, caller, project_id)
    platform = asked.filters.platform_source
    filters = replace(asked.filters, platform_source=None if platform is None else platforms.normalise(platform))
    return replace(asked, project_ids=tuple(sorted(set(project_ids))), filters=filters)


def _filtered(connection: Connection, caller: Caller, asked: Asked) -> Found:
    """List what the filters let through: there is nothing to rank by, so every score is 0."""
    page = listing.page(
        connection,
        caller,
        asked.project_ids,
        asked.filters,
        limit=asked.limit,
        cursor=asked.cursor,
        oldest_first=asked.order_by == "oldest",
    )
    hits = [Hit(memory, 0.0, (), snippets.snippet(_texts(memory), ())) for memory in page.rows]
    return Found(hits, "filter_only", page.next_cursor)


def _page(
    connection: Connection, caller: Caller, asked: Asked, terms: Sequence[text.Term], ranked: _Ranking
) -> tuple[list[Hit], str | None]:
    """Return one page of a ranking, and the cursor of the next."""
    bound_to = paging.binding(
        caller, ["search", asked.project_ids, asked.query, asked.mode, asked.filters, asked.order_by, asked.min_score]
    )
    seqs = ranked.seqs.tolist()
    start = 0 if asked.cursor is None else _resume(seqs, paging.decode(asked.cursor, bound_to))
    end = start + asked.limit
    hits = []
    for seq, score in zip(seqs[start:end], ranked.scores[start:end].tolist(), strict=True):
        if (memory := _BY_SEQ.first(connection, {**parameters(caller), "seq": seq})) is not None:
            shares = tuple(share for voice in ranked.voices if (share := voice.share(seq)))
            legs = tuple(share.leg for share in shares)
            snippet = snippets.snippet(_texts(memory), terms)
            hits.append(Hit(memory, score, legs, snippet, shares if asked.explain else ()))
    if end >= len(seqs):
        return hits, None
    return hits, paging.encode(paging.Place([end, seqs[end - 1]], bound_to))


def _resume(seqs: Sequence[int], at: Sequence[Any]) -> int:
    """Return where to go on: behind the memory that was shown last, or where it would be when it is gone."""
    if [type(value) for value in at] != [int, int]:
        raise Invalid.field("cursor", "not a cursor of this search")
    offset: int
    offset, last_seq = at
    return seqs.index(last_seq) + 1 if last_seq in seqs else offset


def _texts(memory: Memory) -> list[str | None]:
    lists = ["\n".join(item for item in listed if isinstance(item, str)) for listed in (memory.facts, memory.concepts)]
    return [memory.narrative, memory.text, lists[0], memory.title, memory.subtitle, lists[1]]
