"""The search engine: parse the query, retrieve lexical and semantic candidates, fuse them, return a page of hits."""

import time
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
from app.services.search import hybrid, pages
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

LATE_MS: Final = 60_000
"""The index is late when something has waited longer than this to be mirrored."""
_NOTICES: Final[dict[FallbackReason, str]] = {
    "index_behind": "Recent changes are found by their words alone for now; see vectors/status?deep=1.",
    "embedder_error": "The embedding model fails, so only words were searched; see vectors/status?deep=1.",
}
_NOTICE: Final = "The vector index does not answer, so only words were searched; cmem-server doctor tells why."
_SWITCHED_OFF: Final = "Search by meaning is switched off, so only words were searched."


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
            raise Invalid.field("query", "a query or a filter is needed")
        is_blank = not (params.query or "").strip()
        results = _list_filtered(database, caller, params) if is_blank else self._search(database, caller, params)
        results = replace(results, duration_ms=round((time.perf_counter() - started) * 1000))
        _log.info(
            "search_performed",
            count=len(results.hits),
            strategy=results.strategy,
            chroma_available=results.chroma_available,
            reason=results.fallback_reason,
            duration_ms=results.duration_ms,
        )
        return results

    def _search(self, database: Database, caller: Caller, params: SearchParams) -> SearchResults:
        with database.read() as connection:
            params = _resolve_scope(connection, caller, params)
            pending = self._start_semantic(params)
            scope = SearchScope(caller.team_id or "", params.project_ids)
            query = self._parser.parse(connection, scope, params.query or "", params.filters)
            lexical = self._lexical.candidates(connection, query)
        ranking = self._rank(database, params, query, lexical, pending)
        if params.min_score is not None:
            ranking = ranking.take(np.flatnonzero(ranking.scores >= params.min_score))
        with database.read() as connection:
            if ranking.chroma_available and _is_index_late(connection, params):
                ranking = replace(ranking, fallback_reason="index_behind", notice=_NOTICES["index_behind"])
            if params.order_by != "relevance":
                ranking = self._by_time(connection, scope, ranking, oldest_first=params.order_by == "oldest")
            hits, next_cursor = pages.read(connection, caller, params, query.terms, ranking)
        return SearchResults(
            hits,
            ranking.strategy,
            next_cursor,
            chroma_available=ranking.chroma_available,
            fallback_reason=ranking.fallback_reason,
            notice=ranking.notice,
            terms=query.terms,
        )

    def _start_semantic(self, params: SearchParams) -> PendingSearch | None:
        """Send the query to the vector index, unless keywords alone are wanted or available."""
        query = params.query or ""
        if self._semantic is None or params.mode == "keyword" or not text.terms(query):
            return None
        return self._semantic.start(params.project_ids, query)

    def _rank(
        self,
        database: Database,
        params: SearchParams,
        query: Query,
        lexical: Candidates,
        pending: PendingSearch | None,
    ) -> Ranking:
        """Rank the candidates of the retrievers that the mode names; without the index, the lexical ones alone."""
        if self._semantic is None or pending is None:
            is_missing = self._semantic is None and params.mode in ("hybrid", "semantic")
            return replace(hybrid.lexical_only(lexical), notice=_SWITCHED_OFF if is_missing else None)
        try:
            semantic = self._semantic.candidates(database, query, pending)
            if params.mode == "semantic":
                return hybrid.semantic_only(semantic, self._semantic.score(pending, semantic.scores))
            with database.read() as connection:
                rows = self._full_text.ranking_rows(connection, query.scope, hybrid.to_fuse(lexical, semantic))
            cosines = self._semantic.cosines(pending, rows, semantic)
            return hybrid.fuse(query, rows, lexical, self._semantic.score(pending, cosines))
        except VectorsUnavailable as outage:
            notice = _NOTICES.get(outage.reason, _NOTICE)
            return replace(hybrid.lexical_only(lexical), fallback_reason=outage.reason, notice=notice)

    def _by_time(self, connection: Connection, scope: SearchScope, ranking: Ranking, *, oldest_first: bool) -> Ranking:
        positions = {seq: position for position, seq in enumerate(ranking.seqs.tolist())}
        oldest = [positions[seq] for seq in self._full_text.ordered_by_time(connection, scope, list(positions))]
        return ranking.take(np.array(oldest if oldest_first else oldest[::-1], np.intp))


def _resolve_scope(connection: Connection, caller: Caller, params: SearchParams) -> SearchParams:
    """Return the search with the projects in scope, which the caller may read, and its platform in canonical form."""
    project_ids = params.project_ids or ((caller.project_id,) if caller.project_id else ())
    if not project_ids:
        raise Invalid.field("projectId", "name a project, or use a key that is bound to one")
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
