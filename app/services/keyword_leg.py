"""Search by words: rare terms find, common ones only rescore, and the ranker decides."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy import Connection

from app.retrieval import ranking, spelling, text
from app.store.fulltext import Filters, FullText, Holdings, Scope, Seqs
from app.store.fulltext.postings import NOWHERE, Postings, PostingsCache

DEEPEST: Final = 1_000
"""A ranking holds this many memories when as many match."""
ENOUGH_FOUND: Final = 5_000
"""Once this many memories are found, the remaining, more common terms only rescore."""
CORRECTED_TERMS: Final = 3
CORRECTION_ROWS: Final = 50
"""Corrections of a slip are looked for in so many memories that hold a word with the same beginning."""
READ_ROWS: Final = 100
"""The best by presence, whose text is read for exact frequencies."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """Memories from best to worst, with their scores, which have no upper bound, by the terms that were looked for."""

    seqs: Seqs
    scores: ranking.Vector
    terms: Sequence[text.Term]


@dataclass(frozen=True, slots=True)
class _Asked:
    """A query while it is answered, with what each of its terms is worth in these projects."""

    connection: Connection
    scope: Scope
    filters: Filters
    holdings: Holdings
    terms: Sequence[text.Term]
    postings: Sequence[Postings]
    worth: ranking.Vector


class KeywordLeg:
    """The keyword search of one database."""

    def __init__(self, full_text: FullText, *, half_life_days: float) -> None:
        self._full_text = full_text
        self._half_life_days = half_life_days
        self._postings = PostingsCache(full_text)

    def search(self, connection: Connection, scope: Scope, terms: Sequence[text.Term], filters: Filters) -> Ranked:
        """Return the memories that hold the most of the terms, at most `DEEPEST`."""
        holdings = self._full_text.holdings(connection, scope)
        if not terms or not holdings.memories:
            return Ranked(NOWHERE, np.empty(0), terms)
        terms = self._corrected(connection, scope, holdings, terms)
        postings = self._postings.of(connection, scope, holdings, [term.phrases for term in terms])
        worth = ranking.weights(terms, [found.frequency for found in postings], holdings.memories)
        asked = _Asked(connection, scope, filters, holdings, terms, postings, worth)
        found = self._found(asked)
        own, beside = _presence(postings, found)
        scores = ranking.by_presence(worth, own, beside)
        best = ranking.order(scores, found)[:DEEPEST]
        return self._read(asked, Ranked(found[best], scores[best], terms), own[:, best], beside[:, best])

    def _corrected(
        self, connection: Connection, scope: Scope, holdings: Holdings, terms: Sequence[text.Term]
    ) -> Sequence[text.Term]:
        """Replace words that no memory holds by known words that are one slip away."""
        postings = self._postings.of(connection, scope, holdings, [term.phrases for term in terms])
        unknown = [
            term for term, found in zip(terms, postings, strict=True) if not (found.frequency or len(found.beside))
        ]
        slips = [term for term in unknown if spelling.beginning(term)][:CORRECTED_TERMS]
        return [(self._correction(connection, scope, term) or term) if term in slips else term for term in terms]

    def _correction(self, connection: Connection, scope: Scope, term: text.Term) -> text.Term | None:
        beginning = spelling.beginning(term) or ""
        seqs = self._full_text.beginning_with(connection, scope, beginning, limit=CORRECTION_ROWS)
        known = (
            word
            for row in self._full_text.rows(connection, scope, seqs)
            for word in text.words(f"{row.heading}\n{row.body}")
        )
        return spelling.corrected(term, known)

    def _found(self, asked: _Asked) -> Seqs:
        found = NOWHERE
        for listed in _rarest_first(asked.postings):
            if len(found) >= ENOUGH_FOUND:
                return found
            found = np.union1d(found, self._let_through(asked, listed))
        for common in _common_terms(asked):
            if len(found) >= DEEPEST:
                break
            newest = self._full_text.find(
                asked.connection, asked.scope, common, limit=DEEPEST, filters=asked.filters, newest_first=True
            )
            found = np.union1d(found, newest)
        return found

    def _let_through(self, asked: _Asked, seqs: Seqs) -> Seqs:
        if not asked.filters or not len(seqs):
            return seqs
        return self._full_text.allowed(asked.connection, asked.scope, seqs, asked.filters)

    def _read(self, asked: _Asked, ranked: Ranked, own: ranking.Matrix, beside: ranking.Matrix) -> Ranked:
        """Score the head of a ranking by what its texts say; the tail keeps its order below it."""
        by_seq = np.argsort(ranked.seqs[:READ_ROWS])
        rows = self._full_text.rows(asked.connection, asked.scope, ranked.seqs[by_seq])
        head = np.array([row.seq for row in rows], np.int64)
        columns = by_seq[np.searchsorted(ranked.seqs[by_seq], head)]
        scores = ranking.by_frequency(
            asked.terms,
            asked.worth,
            own[:, columns],
            beside[:, columns],
            [ranking.Document(row.heading, row.body, row.neighbours, row.characters) for row in rows],
            average_characters=asked.holdings.characters / asked.holdings.memories,
        )
        scores = ranking.prefer_current(
            scores,
            [ranking.Place(row.id, row.created_at_epoch, row.superseded_by) for row in rows],
            newest_at_epoch=asked.holdings.newest_at_epoch,
            half_life_days=self._half_life_days,
        )
        best = ranking.order(scores, head)
        tail = np.minimum(ranked.scores[READ_ROWS:], scores.min(initial=np.inf))
        seqs = np.concatenate([head[best], ranked.seqs[READ_ROWS:]])
        return Ranked(seqs, np.concatenate([scores[best], tail]), ranked.terms)


def _rarest_first(postings: Sequence[Postings]) -> Iterator[Seqs]:
    rare = [found for found in postings if found.own is not None]
    for found in sorted(rare, key=lambda found: found.frequency):
        if found.own is not None:
            yield np.union1d(found.own, found.beside)


def _common_terms(asked: _Asked) -> list[tuple[text.Phrases, ...]]:
    """What to ask when rare terms have not found enough: all common terms together, then each, the rarest first."""
    places = [place for place, found in enumerate(asked.postings) if found.own is None]
    rarest_first = sorted(places, key=lambda place: asked.postings[place].frequency)
    alone: list[tuple[text.Phrases, ...]] = [(asked.terms[place].phrases,) for place in rarest_first]
    together = tuple(asked.terms[place].phrases for place in places)
    return [together, *alone] if len(alone) > 1 else alone


def _presence(postings: Sequence[Postings], found: Seqs) -> tuple[ranking.Matrix, ranking.Matrix]:
    own = [_among(found, NOWHERE if term.own is None else term.own) for term in postings]
    beside = [_among(found, term.beside) for term in postings]
    return np.array(own), np.array(beside)


def _among(seqs: Seqs, listed: Seqs) -> ranking.Vector:
    """1.0 for each of `seqs` that is listed, else 0.0; both ascend."""
    if not len(listed):
        return np.zeros(len(seqs))
    places = np.minimum(np.searchsorted(listed, seqs), len(listed) - 1)
    present: ranking.Vector = (listed[places] == seqs).astype(float)
    return present
