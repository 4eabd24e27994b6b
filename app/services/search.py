"""Search: the memories that answer a question, best first, read through the caller's scope."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import structlog
from sqlalchemy import Connection

from app.caller import Caller
from app.errors import Invalid
from app.retrieval import ranking, snippets, text
from app.services import listing, paging, platforms, projects
from app.services.keyword_leg import KeywordLeg, Ranked
from app.store.fulltext import NO_FILTERS, Filters, FullText, Scope
from app.store.models import memory_items
from app.store.records import Memory, columns
from app.store.scope import owned

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

_COLUMNS: Final = columns(memory_items, Memory)


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
class _Placed:
    """A memory's place in the ranking of all that was found."""

    seq: int
    score: float
    shares: tuple[Share, ...]


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
        terms = text.terms(asked.query or "")
        scope = Scope(caller.team_id or "", asked.project_ids)
        ranked = _by_words_alone(self._keyword.search(connection, scope, terms, asked.filters))
        ranked = [placed for placed in ranked if placed.score >= (asked.min_score or 0.0)]
        if asked.order_by != "relevance":
            ranked = self._by_time(connection, scope, ranked, oldest_first=asked.order_by == "oldest")
        hits, next_cursor = _page(connection, caller, asked, terms, ranked)
        return Found(hits, "fts", next_cursor)

    def _by_time(
        self, connection: Connection, scope: Scope, ranked: Sequence[_Placed], *, oldest_first: bool
    ) -> list[_Placed]:
        by_seq = {placed.seq: placed for placed in ranked}
        oldest = self._full_text.by_time(connection, scope, list(by_seq))
        return [by_seq[seq] for seq in (oldest if oldest_first else reversed(oldest))]


def _by_words_alone(ranked: Ranked) -> list[_Placed]:
    scored = zip(ranked.seqs.tolist(), ranked.scores.tolist(), strict=True)
    return [
        _Placed(seq, ranking.displayed(score), (Share("keyword", rank, score, 1.0),))
        for rank, (seq, score) in enumerate(scored, 1)
    ]


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
    connection: Connection, caller: Caller, asked: Asked, terms: Sequence[text.Term], ranked: Sequence[_Placed]
) -> tuple[list[Hit], str | None]:
    """Return one page of a ranking, and the cursor of the next."""
    bound_to = paging.binding(
        caller, ["search", asked.project_ids, asked.query, asked.mode, asked.filters, asked.order_by, asked.min_score]
    )
    start = 0 if asked.cursor is None else _resume(ranked, paging.decode(asked.cursor, bound_to))
    end = start + asked.limit
    shown = ranked[start:end]
    known = _memories(connection, caller, [placed.seq for placed in shown])
    hits = [_hit(known[placed.seq], placed, terms, asked.explain) for placed in shown if placed.seq in known]
    if end >= len(ranked):
        return hits, None
    return hits, paging.encode(paging.Place([end, shown[-1].seq], bound_to))


def _resume(ranked: Sequence[_Placed], at: Sequence[Any]) -> int:
    """Return where to go on: behind the memory that was shown last, or where it would be when it is gone."""
    if [type(value) for value in at] != [int, int]:
        raise Invalid.field("cursor", "not a cursor of this search")
    offset, last_seq = at
    return next((place for place, placed in enumerate(ranked, 1) if placed.seq == last_seq), offset)


def _memories(connection: Connection, caller: Caller, seqs: Sequence[int]) -> dict[int, Memory]:
    rows = connection.execute(owned(memory_items, caller, *_COLUMNS).where(memory_items.c.seq.in_(seqs)))
    return {row.seq: Memory(*row) for row in rows}


def _hit(memory: Memory, placed: _Placed, terms: Sequence[text.Term], explain: bool) -> Hit:
    legs = tuple(share.leg for share in placed.shares)
    snippet = snippets.snippet(_texts(memory), terms)
    return Hit(memory, placed.score, legs, snippet, placed.shares if explain else ())


def _texts(memory: Memory) -> list[str | None]:
    lists = ["\n".join(item for item in listed if isinstance(item, str)) for listed in (memory.facts, memory.concepts)]
    return [memory.narrative, memory.text, lists[0], memory.title, memory.subtitle, lists[1]]
