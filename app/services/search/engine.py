"""Search: the memories that answer a question, best first, read through the caller's scope."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal

import numpy as np
import structlog
from sqlalchemy import Connection, bindparam

from app.caller import Caller
from app.clock import now_ms
from app.errors import Invalid
from app.retrieval import snippets, text
from app.services.memories import listing
from app.services.projects import projects
from app.services.search import hybrid, results
from app.services.search.lexical import KeywordLeg, Question, Ranked
from app.services.search.results import Share, Verdict
from app.services.search.semantic import MeaningLeg, Pending
from app.services.shared import paging, platforms
from app.store import outbox
from app.store.database import Database
from app.store.fulltext import NO_FILTERS, Filters, FullText, Scope
from app.store.models import memory_items
from app.store.prepared import Prepared
from app.store.records import Memory, columns
from app.store.scope import owned_template, parameters
from app.vectors import errors
from app.vectors.index import Index

_log = structlog.get_logger(__name__)

MAX_LIMIT: Final = 100
DEFAULT_LIMIT: Final = 20

Mode = Literal["auto", "hybrid", "keyword", "semantic"]
OrderBy = Literal["relevance", "newest", "oldest"]
Leg = results.Leg
Strategy = Literal["hybrid", "chroma", "fts", "filter_only"]
FallbackReason = errors.Reason

LATE_MS: Final = 60_000
"""What has waited longer than this to be mirrored makes the index late."""
_NOTICES: Final[dict[FallbackReason, str]] = {
    "index_behind": "Recent changes are found by their words alone for now; see vectors/status?deep=1.",
    "embedder_error": "The embedding model fails, so only words were searched; see vectors/status?deep=1.",
}
_NOTICE: Final = "The vector index does not answer, so only words were searched; cmem-server doctor tells why."
_SWITCHED_OFF: Final = "Search by meaning is switched off, so only words were searched."

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
class Hit:
    """A memory that was found by some terms. `score` is 0…1 and compares within one reply; `shares` only on demand."""

    memory: Memory
    score: float
    matched_by: tuple[Leg, ...]
    terms: Sequence[text.Term] = ()
    shares: tuple[Share, ...] = ()

    @property
    def snippet(self) -> str | None:
        """The piece of its text that shows why it was found."""
        return snippets.snippet(_texts(self.memory), self.terms)


@dataclass(frozen=True, slots=True)
class Found:
    """One page of a search, how it came about, and the terms that were looked for in the end."""

    hits: Sequence[Hit]
    strategy: Strategy
    next_cursor: str | None
    degraded: bool = False
    chroma_available: bool = False
    fallback_reason: FallbackReason | None = None
    notice: str | None = None
    terms: Sequence[text.Term] = ()
    duration_ms: int = 0


@dataclass(frozen=True, slots=True)
class _Reached:
    """What the legs said, which of them were heard, and why not both."""

    verdict: Verdict
    strategy: Strategy
    reached_index: bool = False
    reason: FallbackReason | None = None
    notice: str | None = None


class Searching:
    """The search of one database, with what it remembers between requests."""

    def __init__(self, full_text: FullText, *, recency_half_life_days: float, index: Index | None = None) -> None:
        """`index` None is a server without vectors, by choice."""
        self._full_text = full_text
        self._meaning = None if index is None else MeaningLeg(full_text, index.meaning, index.embedder)
        self._keyword = KeywordLeg(full_text, half_life_days=recency_half_life_days)

    def close(self) -> None:
        """Let go of what works in the background."""
        if self._meaning is not None:
            self._meaning.close()

    def search(self, database: Database, caller: Caller, asked: Asked) -> Found:
        """Return a page of what answers the query within the filters; without a query, the filtered rows by time.

        Reads are short, and nobody waits for the vector index inside one. Raises Invalid without both and for a
        foreign cursor, Forbidden for projects out of reach.
        """
        started = time.perf_counter()
        if asked.query is None and not asked.filters:
            raise Invalid.field("query", "a query or a filter is needed")
        is_blank = not (asked.query or "").strip()
        found = _without_query(database, caller, asked) if is_blank else self._answer(database, caller, asked)
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

    def _answer(self, database: Database, caller: Caller, asked: Asked) -> Found:
        with database.read() as connection:
            asked = _within_reach(connection, caller, asked)
            pending = self._begin(asked)
            question = self._keyword.ask(connection, _scope(caller, asked), asked.query or "", asked.filters)
            words = self._keyword.rank(connection, question)
        reached = self._reached(database, asked, question, words, pending)
        found = reached.verdict
        if asked.min_score is not None:
            found = found.only(np.flatnonzero(found.scores >= asked.min_score))
        with database.read() as connection:
            if reached.reached_index and _is_late(connection, asked):
                reached = replace(reached, reason="index_behind", notice=_NOTICES["index_behind"])
            if asked.order_by != "relevance":
                found = self._by_time(connection, question.scope, found, oldest_first=asked.order_by == "oldest")
            hits, next_cursor = _page(connection, caller, asked, question.terms, found)
        return Found(
            hits,
            reached.strategy,
            next_cursor,
            degraded=reached.reason is not None,
            chroma_available=reached.reached_index,
            fallback_reason=reached.reason,
            notice=reached.notice,
            terms=question.terms,
        )

    def _begin(self, asked: Asked) -> Pending | None:
        """Send the question to the vector index, unless words alone are wanted or all there is."""
        query = asked.query or ""
        if self._meaning is None or asked.mode == "keyword" or not text.terms(query):
            return None
        return self._meaning.begin(asked.project_ids, query)

    def _reached(
        self, database: Database, asked: Asked, question: Question, words: Ranked, pending: Pending | None
    ) -> "_Reached":
        """Join the legs that the mode names; without the index, words alone answer."""
        alone = _Reached(hybrid.by_words_alone(words), "fts")
        if self._meaning is None or pending is None:
            wanted = self._meaning is None and asked.mode in ("hybrid", "semantic")
            return replace(alone, notice=_SWITCHED_OFF if wanted else None)
        try:
            if asked.mode == "semantic":
                ranked = hybrid.by_meaning_alone(database, self._meaning, question, pending)
                return _Reached(ranked, "chroma", True)
            fused = hybrid.fuse(database, self._keyword, self._meaning, question, words, pending)
            return _Reached(fused, "hybrid", True)
        except errors.VectorsUnavailable as outage:
            return replace(alone, reason=outage.reason, notice=_NOTICES.get(outage.reason, _NOTICE))

    def _by_time(self, connection: Connection, scope: Scope, ranked: Verdict, *, oldest_first: bool) -> Verdict:
        places = {seq: place for place, seq in enumerate(ranked.seqs.tolist())}
        oldest = [places[seq] for seq in self._full_text.by_time(connection, scope, list(places))]
        return ranked.only(np.array(oldest if oldest_first else oldest[::-1], np.intp))


def _scope(caller: Caller, asked: Asked) -> Scope:
    return Scope(caller.team_id or "", asked.project_ids)


def _is_late(connection: Connection, asked: Asked) -> bool:
    return outbox.is_behind(connection, asked.project_ids, before_ms=now_ms() - LATE_MS)


def _within_reach(connection: Connection, caller: Caller, asked: Asked) -> Asked:
    project_ids = asked.project_ids or ((caller.project_id,) if caller.project_id else ())
    if not project_ids:
        raise Invalid.field("projectId", "name a project, or use a key that is bound to one")
    for project_id in project_ids:
        projects.require(connection, caller, project_id)
    platform = asked.filters.platform_source
    filters = replace(asked.filters, platform_source=None if platform is None else platforms.normalise(platform))
    return replace(asked, project_ids=tuple(sorted(set(project_ids))), filters=filters)


def _without_query(database: Database, caller: Caller, asked: Asked) -> Found:
    """List what the filters let through: there is nothing to rank by, so every score is 0."""
    with database.read() as connection:
        asked = _within_reach(connection, caller, asked)
        if not asked.filters:
            return Found([], "fts", None)
        page = listing.page(
            connection,
            caller,
            asked.project_ids,
            asked.filters,
            limit=asked.limit,
            cursor=asked.cursor,
            oldest_first=asked.order_by == "oldest",
        )
    return Found([Hit(memory, 0.0, ()) for memory in page.rows], "filter_only", page.next_cursor)


def _page(
    connection: Connection, caller: Caller, asked: Asked, terms: Sequence[text.Term], ranked: Verdict
) -> tuple[list[Hit], str | None]:
    """Return one page of a ranking, and the cursor of the next."""
    bound_to = paging.binding(
        caller, ["search", asked.project_ids, asked.query, asked.mode, asked.filters, asked.order_by, asked.min_score]
    )
    seqs = ranked.seqs.tolist()
    start = 0 if asked.cursor is None else _resume(seqs, paging.decode(asked.cursor, bound_to))
    end = start + asked.limit
    said = [voice.shares(ranked.seqs[start:end]) for voice in ranked.voices]
    hits = []
    for seq, score in zip(seqs[start:end], ranked.scores[start:end].tolist(), strict=True):
        if (memory := _BY_SEQ.first(connection, {**parameters(caller), "seq": seq})) is not None:
            shares = tuple(by_seq[seq] for by_seq in said if seq in by_seq)
            legs = tuple(share.leg for share in shares)
            hits.append(Hit(memory, score, legs, terms, shares if asked.explain else ()))
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
