"""Lexical search: rare terms find candidates, common ones only add to their scores."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
from sqlalchemy import Connection

from app.retrieval import ranking, text
from app.retrieval.ranking import ScoredDocuments
from app.services.search.query import Query
from app.services.search.results import Candidates
from app.store.fulltext import FullText, RankingRow, Seqs
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
        scores = ranking.score_binary(query.term_weights, *_binary_frequencies(query, seqs))
        best = ranking.order(scores, seqs)[:MAX_CANDIDATES]
        seqs, scores = seqs[best], scores[best]
        head = self._read(connection, query, np.sort(seqs[:READ_ROWS]))
        # what was not read keeps its order, below what was
        tail = np.minimum(scores[READ_ROWS:], head.scores.min(initial=np.inf))
        return Candidates("keyword", np.concatenate([head.seqs, seqs[READ_ROWS:]]), np.concatenate([head.scores, tail]))

    def _read(self, connection: Connection, query: Query, seqs: Seqs) -> Candidates:
        """Rank memories by their texts."""
        rows = self._full_text.ranking_rows(connection, query.scope, seqs)
        scores = ranking.prefer_current(
            score(query, rows).scores,
            rows,
            newest_at_epoch=query.statistics.newest_at_epoch,
            half_life_days=query.half_life_days,
        )
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


def score(query: Query, rows: Sequence[RankingRow]) -> ScoredDocuments:
    """Score memories, in ascending order of `seq`, by what their texts say."""
    return ranking.score_documents(
        query.terms,
        query.term_weights,
        *_binary_frequencies(query, np.array([row.seq for row in rows], np.int64)),
        rows,
        average_characters=query.statistics.characters / max(query.statistics.memories, 1),
    )


def _binary_frequencies(query: Query, seqs: Seqs) -> tuple[ranking.Matrix, ranking.Matrix]:
    """Return which terms are in the memories' own text and which in their context text (terms × memories)."""
    shape = (len(query.postings), len(seqs))
    own = [_membership(seqs, NO_SEQS if postings.own is None else postings.own) for postings in query.postings]
    context = [_membership(seqs, postings.in_context) for postings in query.postings]
    return np.array(own).reshape(shape), np.array(context).reshape(shape)


def _membership(seqs: Seqs, listed: Seqs) -> ranking.Vector:
    """Return 1.0 for each of `seqs` that is listed, else 0.0; both are ascending."""
    if not len(listed):
        return np.zeros(len(seqs))
    positions = np.minimum(np.searchsorted(listed, seqs), len(listed) - 1)
    is_listed: ranking.Vector = (listed[positions] == seqs).astype(float)
    return is_listed


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
