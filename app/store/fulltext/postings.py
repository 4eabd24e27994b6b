"""The postings of query terms in the projects in scope: complete lists for rare terms, a count for common ones.

They are cached until something in those projects changes: their change counters are part of the key.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy import Connection

from app.store.fulltext import CorpusStatistics, FullText, Phrases, SearchScope, Seqs

RARE_ROWS: Final = 2_000
RARE_SHARE: Final = 0.1
"""A term is rare with at most `RARE_ROWS` memories, or this share of them; only then is its whole list read."""
COUNTED_ROWS: Final = 20_000
MAX_CACHED_ROWS: Final = 2_000_000
NO_SEQS: Final[Seqs] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Postings:
    """How many memories contain a term, and which (None: too many). `in_context`: only their context text has it."""

    frequency: int
    own: Seqs | None
    in_context: Seqs

    @property
    def size(self) -> int:
        """Its cost in the cache, in rows."""
        return 16 + len(self.in_context) + (0 if self.own is None else len(self.own))


_Key = tuple[tuple[tuple[str, int], ...], Phrases]


class PostingsCache:
    """A least-recently-used cache of postings in one database. Safe to share between threads."""

    def __init__(self, full_text: FullText, *, max_rows: int = MAX_CACHED_ROWS) -> None:
        self._full_text = full_text
        self._max_rows = max_rows
        self._rows = 0
        self._cached: OrderedDict[_Key, Postings] = OrderedDict()
        self._lock = threading.Lock()

    def get(
        self, connection: Connection, scope: SearchScope, statistics: CorpusStatistics, terms: Sequence[Phrases]
    ) -> list[Postings]:
        """Return the postings of each term."""
        return [self._get_one(connection, scope, statistics, term) for term in terms]

    def _get_one(
        self, connection: Connection, scope: SearchScope, statistics: CorpusStatistics, term: Phrases
    ) -> Postings:
        key = (statistics.changes, term)
        with self._lock:
            if (cached := self._cached.get(key)) is not None:
                self._cached.move_to_end(key)
                return cached
        postings = _read(self._full_text, connection, scope, statistics, term)
        self._store(key, postings)
        return postings

    def _store(self, key: _Key, postings: Postings) -> None:
        with self._lock:
            if key not in self._cached:
                self._cached[key] = postings
                self._rows += postings.size
            while self._rows > self._max_rows:
                self._rows -= self._cached.popitem(last=False)[1].size


def _read(
    full_text: FullText, connection: Connection, scope: SearchScope, statistics: CorpusStatistics, term: Phrases
) -> Postings:
    limit = max(RARE_ROWS, int(statistics.memories * RARE_SHARE))
    own = full_text.find(connection, scope, (term,), limit=limit + 1)
    if len(own) > limit:
        return Postings(_frequency(full_text, connection, scope, statistics, term), None, NO_SEQS)
    in_context = full_text.find(connection, scope, (term,), limit=limit, in_context=True)
    return Postings(len(own), own, np.setdiff1d(in_context, own, assume_unique=True))


def _frequency(
    full_text: FullText, connection: Connection, scope: SearchScope, statistics: CorpusStatistics, term: Phrases
) -> int:
    """Count the memories that contain a term; extrapolate from the first ones when there are very many."""
    counted, last_seq = full_text.count(connection, scope, term, limit=COUNTED_ROWS)
    if counted < COUNTED_ROWS:
        return counted
    examined = full_text.count_through(connection, scope, last_seq)
    return min(statistics.memories, round(counted * statistics.memories / max(examined, 1)))
