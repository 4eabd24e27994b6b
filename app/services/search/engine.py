"""The search engine: parse the query, retrieve lexical and semantic candidates, fuse them, return a page of hits."""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import numpy as np
import structlog
from sqlalchemy import Connection

from app.caller import Caller
from app.clock import now_ms
from app.errors import Invalid
from app.retrieval import text
from app.services.memories import listing
from app.services.projects import projects
from app.services.search import hybrid, lexical, results
from app.services.search.lexical import LexicalRetriever
from app.services.search.query import Query, QueryParser, SearchParams
from app.services.search.results import Candidates, FallbackReason, Hit, Ranking, SearchResults
from app.services.search.semantic import PendingSearch, SemanticRetriever
from app.services.shared import platforms
from app.store import outbox
from app.store.database import Database
from app.store.fulltext import FullText, SearchScope
from app.vectors.errors import VectorsUnavailable
from app.vectors.index import Index

_log = structlog.get_logger(__name__)

LEXICAL_CANDIDATES: Final = 60
"""How many of the best lexical candidates are fused with the semantic ones."""
LATE_MS: Final = 60_000
"""The index is late when something has waited longer than this to be mirrored."""
_NOTICES: Final[dict[FallbackReason, str]] = {
    "index_behind": "Recent changes can only be found by keyword for now; see vectors/status?deep=1.",
    "embedder_error": "The embedding model is failing, so only keywords were searched; see vectors/status?deep=1.",
}
_NOTICE: Final = (
    "The vector index is not responding, so only keywords were searched; run cmem-server doctor to see why."
)
_SWITCHED_OFF: Final = "Semantic search is switched off, so only keywords were searched."


class SearchEngine:
    """Searches one database; keeps what helps the next search."""

    def __init__(self, full_text: FullText, *, recency_half_life_days: float, index: Index | None = None) -> None:
        """`index` is None on a server that is configured without vectors."""
        self._full_text = full_text
        self._parser = QueryParser(full_text, half_life_days=recency_half_life_days)
        self._lexical = LexicalRetriever(full_text)
        self._semantic = None if index is None else SemanticRetriever(full_text, index.semantic_search, index.embedder)

    def close(self) -> None:
        """Stop the background threads."""
        if self._semantic is not None:
            self._semantic.close()

    def search(self, database: Database, caller: Caller, params: SearchParams) -> SearchResults:
        """Return a page of what matches the query and the filters; without a query, what passes the filters, by time.

        Transactions are short, and none is held while waiting for the vector index. Raises Invalid without query and
        filter, and for a cursor of another search; Forbidden for projects out of reach.
        """
        started = time.perf_counter()
        if params.query is None and not params.filters:
            raise Invalid.field("query", "must be given unless there is a filter")
        is_blank = not (params.query or "").strip()
        found = _list_filtered(database, caller, params) if is_blank else self._search(database, caller, params)
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

    def _search(self, database: Database, caller: Caller, params: SearchParams) -> SearchResults:
        with database.read() as connection:
            params = _resolve_scope(connection, caller, params)
            scope = SearchScope(caller.team_id or "", params.project_ids)
            terms = text.terms(params.query or "")
            pending = self._start_semantic(params, terms)
            query = self._parser.parse(connection, scope, terms, params.filters)
            candidates = self._lexical.candidates(connection, query)
        ranking = self._rank(database, params, query, candidates, pending)
        with database.read() as connection:
            ranking = self._arrange(connection, params, query, ranking)
            return results.read_page(connection, caller, params, query.terms, ranking)

    def _start_semantic(self, params: SearchParams, terms: Sequence[text.Term]) -> PendingSearch | None:
        """Send the query to the vector index, unless keywords alone are wanted or available."""
        if self._semantic is None or params.mode == "keyword" or not terms:
            return None
        return self._semantic.start(params.project_ids, params.query or "")

    def _rank(
        self,
        database: Database,
        params: SearchParams,
        query: Query,
        candidates: Candidates,
        pending: PendingSearch | None,
    ) -> Ranking:
        """Rank what the retrievers of the mode find; without the index, the lexical candidates alone."""
        if self._semantic is None or pending is None:
            is_missing = self._semantic is None and params.mode in ("hybrid", "semantic")
            return replace(hybrid.lexical_only(candidates), notice=_SWITCHED_OFF if is_missing else None)
        try:
            closest = self._semantic.candidates(database, query, pending)
            if params.mode == "semantic":
                return hybrid.semantic_only(closest, self._semantic.interpret(pending, closest.scores))
            seqs = np.union1d(candidates.seqs[:LEXICAL_CANDIDATES], closest.seqs)
            with database.read() as connection:
                rows = self._full_text.ranking_rows(connection, query.scope, seqs)
            by_words = lexical.score(query, rows)
            by_meaning = self._semantic.score(pending, rows, closest)
            return hybrid.fuse(query, rows, by_words, by_meaning, candidates)
        except VectorsUnavailable as outage:
            notice = _NOTICES.get(outage.reason, _NOTICE)
            return replace(hybrid.lexical_only(candidates), fallback_reason=outage.reason, notice=notice)

    def _arrange(self, connection: Connection, params: SearchParams, query: Query, ranking: Ranking) -> Ranking:
        """Apply what the request says of scores and order, and note when the index is late."""
        if params.min_score is not None:
            ranking = ranking.take(np.flatnonzero(ranking.scores >= params.min_score))
        if ranking.chroma_available and _is_index_late(connection, params):
            ranking = replace(ranking, fallback_reason="index_behind", notice=_NOTICES["index_behind"])
        if params.order_by != "relevance":
            ranking = self._by_time(connection, query.scope, ranking, oldest_first=params.order_by == "oldest")
        return ranking

    def _by_time(self, connection: Connection, scope: SearchScope, ranking: Ranking, *, oldest_first: bool) -> Ranking:
        positions = {seq: position for position, seq in enumerate(ranking.seqs.tolist())}
        oldest = [positions[seq] for seq in self._full_text.ordered_by_time(connection, scope, list(positions))]
        return ranking.take(np.array(oldest if oldest_first else oldest[::-1], np.intp))


def _resolve_scope(connection: Connection, caller: Caller, params: SearchParams) -> SearchParams:
    """Return the search with the projects in scope, which the caller may read, and its platform in canonical form."""
    project_ids = params.project_ids or ((caller.project_id,) if caller.project_id else ())
    if not project_ids:
        raise Invalid.field("projectId", "must be given unless the API key is bound to a project")
    for project_id in project_ids:
        projects.require(connection, caller, project_id)
    platform = params.filters.platform_source
    filters = replace(params.filters, platform_source=None if platform is None else platforms.normalise(platform))
    return replace(params, project_ids=tuple(sorted(set(project_ids))), filters=filters)


def _list_filtered(database: Database, caller: Caller, params: SearchParams) -> SearchResults:
    """List what passes the filters, by time: there is nothing to rank by, so every score is 0."""
    with database.read() as connection:
        params = _resolve_scope(connection, caller, params)
        if not params.filters:
            return SearchResults([], "fts", None)
        page = listing.list_page(
            connection,
            caller,
            params.project_ids,
            params.filters,
            limit=params.limit,
            cursor=params.cursor,
            oldest_first=params.order_by == "oldest",
        )
    return SearchResults([Hit(memory, 0.0, ()) for memory in page.rows], "filter_only", page.next_cursor)


def _is_index_late(connection: Connection, params: SearchParams) -> bool:
    return outbox.is_lagging(connection, params.project_ids, before_ms=now_ms() - LATE_MS)
