"""Where each asked term stands in the asked projects: whole lists for rare terms, a count for common ones.

Lists are remembered while nothing in those projects changes: their number of changes is part of the key.
"""

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from sqlalchemy import Connection

from app.store.fulltext import FullText, Holdings, Phrases, Scope, Seqs

RARE_ROWS: Final = 2_000
RARE_SHARE: Final = 0.1
"""A term is rare with at most `RARE_ROWS` memories or this share of them: only then its list is read to the end."""
COUNTED_ROWS: Final = 20_000
REMEMBERED_ROWS: Final = 2_000_000
NOWHERE: Final[Seqs] = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True)
class Postings:
    """How many memories hold a term, and which: None when too many. `beside`: only in the text of their neighbours."""

    frequency: int
    own: Seqs | None
    beside: Seqs

    @property
    def size(self) -> int:
        """How much room it takes, in rows."""
        return 16 + len(self.beside) + (0 if self.own is None else len(self.own))


_Key = tuple[tuple[tuple[str, int], ...], Phrases]


class PostingsCache:
    """The postings of terms in one database, the least recently used forgotten first. Safe to share between threads."""

    def __init__(self, full_text: FullText, *, max_rows: int = REMEMBERED_ROWS) -> None:
        self._full_text = full_text
        self._max_rows = max_rows
        self._rows = 0
        self._known: OrderedDict[_Key, Postings] = OrderedDict()
        self._lock = threading.Lock()

    def of(self, connection: Connection, scope: Scope, holdings: Holdings, terms: Sequence[Phrases]) -> list[Postings]:
        """Return the postings of each term."""
        return [self._of_one(connection, scope, holdings, term) for term in terms]

    def _of_one(self, connection: Connection, scope: Scope, holdings: Holdings, term: Phrases) -> Postings:
        key = (holdings.changes, term)
        with self._lock:
            if (known := self._known.get(key)) is not None:
                self._known.move_to_end(key)
                return known
        found = _read(self._full_text, connection, scope, holdings, term)
        self._remember(key, found)
        return found

    def _remember(self, key: _Key, found: Postings) -> None:
        with self._lock:
            if key not in self._known:
                self._known[key] = found
                self._rows += found.size
            while self._rows > self._max_rows:
                self._rows -= self._known.popitem(last=False)[1].size


def _read(full_text: FullText, connection: Connection, scope: Scope, holdings: Holdings, term: Phrases) -> Postings:
    limit = max(RARE_ROWS, int(holdings.memories * RARE_SHARE))
    own = full_text.find(connection, scope, (term,), limit=limit + 1)
    if len(own) > limit:
        return Postings(_frequency(full_text, connection, scope, holdings, term), None, NOWHERE)
    beside = full_text.find(connection, scope, (term,), limit=limit, neighbours=True)
    return Postings(len(own), own, np.setdiff1d(beside, own, assume_unique=True))


def _frequency(full_text: FullText, connection: Connection, scope: Scope, holdings: Holdings, term: Phrases) -> int:
    """Count the memories that hold a term; of very many count the first, and conclude from them."""
    counted, last_seq = full_text.count(connection, scope, term, limit=COUNTED_ROWS)
    if counted < COUNTED_ROWS:
        return counted
    looked_through = full_text.count_up_to(connection, scope, last_seq)
    return min(holdings.memories, round(counted * holdings.memories / max(looked_through, 1)))
