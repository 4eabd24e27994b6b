"""Search by words: rare terms find, common ones only rescore, and the ranker decides."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy import Connection

from app.retrieval import ranking, spelling, text
from app.store.fulltext import Filters, FullText, Holdings, Row, Scope, Seqs
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
class Question:
    """A query while it is answered, with what each of its terms is worth in the asked projects."""

    scope: Scope
    filters: Filters
    holdings: Holdings
    terms: Sequence[text.Term]
    postings: Sequence[Postings]
    worth: ranking.Vector


@dataclass(frozen=True, slots=True)
class Readings:
    """Memories whose text was read, ascending by `seq`, and what their words are worth."""

    rows: Sequence[Row]
    judged: ranking.Judged

    @property
    def seqs(self) -> Seqs:
        """The keys of the rows."""
        return np.array([row.seq for row in self.rows], np.int64)


class KeywordLeg:
    """The keyword search of one database."""

    def __init__(self, full_text: FullText, *, half_life_days: float) -> None:
        self._full_text = full_text
        self._half_life_days = half_life_days
        self._postings = PostingsCache(full_text)

    def ask(self, connection: Connection, scope: Scope, query: str, filters: Filters) -> Question:
        """Return the question that a query asks of these projects."""
        holdings = self._full_text.holdings(connection, scope)
        terms = self._corrected(connection, scope, holdings, text.terms(query))
        postings = self._postings.of(connection, scope, holdings, [term.phrases for term in terms])
        worth = ranking.weights(terms, [found.frequency for found in postings], holdings.memories)
        return Question(scope, filters, holdings, terms, postings, worth)

    def rank(self, connection: Connection, question: Question) -> Ranked:
        """Return the memories that hold the most of the terms, at most `DEEPEST`."""
        found = self._found(connection, question)
        own, beside = _presence(question.postings, found)
        scores = ranking.by_presence(question.worth, own, beside)
        best = ranking.order(scores, found)[:DEEPEST]
        readings = self.read(connection, question, np.sort(found[best][:READ_ROWS]))
        head = self.prefer_current(question, readings, readings.judged.scores)
        # the tail keeps its order, below what was read
        tail = np.minimum(scores[best][READ_ROWS:], head.scores.min(initial=np.inf))
        return Ranked(
            np.concatenate([head.seqs, found[best][READ_ROWS:]]), np.concatenate([head.scores, tail]), question.terms
        )

    def read(self, connection: Connection, question: Question, seqs: Seqs) -> Readings:
        """Score memories, given ascending, by what their texts say; what is out of reach is left out."""
        rows = self._full_text.rows(connection, question.scope, seqs)
        own, beside = _presence(question.postings, np.array([row.seq for row in rows], np.int64))
        judged = ranking.by_frequency(
            question.terms,
            question.worth,
            own,
            beside,
            [ranking.Document(row.heading, row.body, row.neighbours, row.characters) for row in rows],
            average_characters=question.holdings.characters / max(question.holdings.memories, 1),
        )
        return Readings(rows, judged)

    def prefer_current(self, question: Question, readings: Readings, scores: ranking.Vector) -> Ranked:
        """Return the read memories by their scores, with the newer first of near equals and no replaced one on top."""
        adjusted = ranking.prefer_current(
            scores,
            [ranking.Place(row.id, row.created_at_epoch, row.superseded_by) for row in readings.rows],
            newest_at_epoch=question.holdings.newest_at_epoch,
            half_life_days=self._half_life_days,
        )
        best = ranking.order(adjusted, readings.seqs)
        return Ranked(readings.seqs[best], adjusted[best], question.terms)

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

    def _found(self, connection: Connection, question: Question) -> Seqs:
        found = NOWHERE
        for listed in _rarest_first(question.postings):
            if len(found) >= ENOUGH_FOUND:
                return found
            found = _merged(found, self._let_through(connection, question, listed))
        for common in _common_terms(question):
            if len(found) >= DEEPEST:
                break
            newest = self._full_text.find(
                connection, question.scope, common, limit=DEEPEST, filters=question.filters, newest_first=True
            )
            found = _merged(found, newest)
        return found

    def _let_through(self, connection: Connection, question: Question, seqs: Seqs) -> Seqs:
        if not question.filters or not len(seqs):
            return seqs
        return self._full_text.allowed(connection, question.scope, seqs, question.filters)


def _merged(one: Seqs, other: Seqs) -> Seqs:
    """The union of two ascending lists; np.union1d does not know that they are sorted and takes ten times as long."""
    both = np.concatenate((one, other))
    both.sort(kind="stable")
    return both[np.append(True, both[1:] != both[:-1])] if len(both) else both


def _rarest_first(postings: Sequence[Postings]) -> Iterator[Seqs]:
    rare = [found for found in postings if found.own is not None]
    for found in sorted(rare, key=lambda found: found.frequency):
        if found.own is not None:
            yield _merged(found.own, found.beside)


def _common_terms(question: Question) -> list[tuple[text.Phrases, ...]]:
    """What to ask when rare terms have not found enough: all common terms together, then each, the rarest first."""
    places = [place for place, found in enumerate(question.postings) if found.own is None]
    rarest_first = sorted(places, key=lambda place: question.postings[place].frequency)
    alone: list[tuple[text.Phrases, ...]] = [(question.terms[place].phrases,) for place in rarest_first]
    together = tuple(question.terms[place].phrases for place in places)
    return [together, *alone] if len(alone) > 1 else alone


def _presence(postings: Sequence[Postings], found: Seqs) -> tuple[ranking.Matrix, ranking.Matrix]:
    shape = (len(postings), len(found))
    own = [_among(found, NOWHERE if term.own is None else term.own) for term in postings]
    beside = [_among(found, term.beside) for term in postings]
    return np.array(own).reshape(shape), np.array(beside).reshape(shape)


def _among(seqs: Seqs, listed: Seqs) -> ranking.Vector:
    """1.0 for each of `seqs` that is listed, else 0.0; both ascend."""
    if not len(listed):
        return np.zeros(len(seqs))
    places = np.minimum(np.searchsorted(listed, seqs), len(listed) - 1)
    present: ranking.Vector = (listed[places] == seqs).astype(float)
    return present
