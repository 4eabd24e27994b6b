"""Lexical search: rare terms find candidates, common ones only add to their scores."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from sqlalchemy import Connection

from app.retrieval import ranking, text
from app.services.search.query import Query
from app.services.search.results import Candidates
from app.store.fulltext import FullText, Seqs
from app.store.fulltext.postings import NO_SEQS, Postings

MAX_CANDIDATES: Final = 1_000
"""How many memories are ranked when that many match."""
ENOUGH_MATCHES: Final = 5_000
"""Once this many memories match, the remaining, more common terms only add to their scores."""
READ_ROWS: Final = 100
"""How many of the best by binary term frequency are read, for exact frequencies."""


class LexicalRetriever:
    """The keyword search of one database."""

    def __init__(self, full_text: FullText) -> None:
        self._full_text = full_text

    def candidates(self, connection: Connection, query: Query) -> Candidates:
        """Return the memories that match the query best, at most `MAX_CANDIDATES`."""
        seqs = self._matches(connection, query)
        scores = query.score_by_postings(seqs)
        best = ranking.order(scores, seqs)[:MAX_CANDIDATES]
        seqs, scores = seqs[best], scores[best]
        head = self._read(connection, query, np.sort(seqs[:READ_ROWS]))
        # what was not read keeps its order, below what was
        tail = np.minimum(scores[READ_ROWS:], head.scores.min(initial=np.inf))
        return Candidates("keyword", np.concatenate([head.seqs, seqs[READ_ROWS:]]), np.concatenate([head.scores, tail]))

    def _read(self, connection: Connection, query: Query, seqs: Seqs) -> Candidates:
        """Rank memories by their texts."""
        rows = self._full_text.ranking_rows(connection, query.scope, seqs)
        scores = query.prefer_current(rows, query.score(rows).scores)
        return Candidates.best_first("keyword", np.array([row.seq for row in rows], np.int64), scores)

    def _matches(self, connection: Connection, query: Query) -> Seqs:
        """Return the memories that have a rare term, then, if these are few, the newest that have a common one."""
        matches = NO_SEQS
        for listed in _rarest_first(query.postings):
            if len(matches) >= ENOUGH_MATCHES:
                return matches
            matches = _union(matches, self._filter(connection, query, listed))
        for all_of in _common_terms(query):
            if len(matches) >= MAX_CANDIDATES:
                break
            newest = self._full_text.find(
                connection, query.scope, all_of, limit=MAX_CANDIDATES, filters=query.filters, newest_first=True
            )
            matches = _union(matches, newest)
        return matches

    def _filter(self, connection: Connection, query: Query, seqs: Seqs) -> Seqs:
        if not query.filters or not len(seqs):
            return seqs
        return self._full_text.matching(connection, query.scope, seqs, query.filters)


def _union(one: Seqs, other: Seqs) -> Seqs:
    """Merge two ascending lists; np.union1d cannot assume that they are sorted and takes ten times as long."""
    both = np.concatenate((one, other))
    both.sort(kind="stable")
    return both[np.append(True, both[1:] != both[:-1])] if len(both) else both


def _rarest_first(postings: Sequence[Postings]) -> Iterator[Seqs]:
    rare = [each for each in postings if each.own is not None]
    for each in sorted(rare, key=lambda each: each.frequency):
        if each.own is not None:
            yield _union(each.own, each.in_context)


def _common_terms(query: Query) -> list[tuple[text.Phrases, ...]]:
    """Return the searches for when rare terms match too little: all common terms together, then each, rarest first."""
    common = [index for index, postings in enumerate(query.postings) if postings.own is None]
    rarest_first = sorted(common, key=lambda index: query.postings[index].frequency)
    each: list[tuple[text.Phrases, ...]] = [(query.terms[index].phrases,) for index in rarest_first]
    together = tuple(query.terms[index].phrases for index in common)
    return [together, *each] if len(each) > 1 else each
