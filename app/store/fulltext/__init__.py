"""Full text finds rows inside the asked projects and counts there; it never scores.

One contract, one module per dialect.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, TextClause

Seqs = npt.NDArray[np.int64]
"""Keys of memories (`memory_items.seq`), ascending and without repeats."""

Phrases = tuple[tuple[str, ...], ...]
"""Any of these sequences of words. Words are text: none of them can be syntax."""


@dataclass(frozen=True, slots=True)
class Scope:
    """The team that asks and the projects it asks, which are its own."""

    team_id: str
    project_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Filters:
    """Which memories may be found at all; empty or None sets no limit. Times are epoch ms, `after <= t < before`.

    A file is a path or a folder: it matches that path and everything below it, or the path alone with `files_exact`.
    """

    kinds: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    concepts: tuple[str, ...] = ()
    files: tuple[str, ...] = ()
    files_exact: bool = False
    platform_source: str | None = None
    server_session_id: str | None = None
    created_after: int | None = None
    created_before: int | None = None

    def __bool__(self) -> bool:
        return self != NO_FILTERS


NO_FILTERS: Final = Filters()


@dataclass(frozen=True, slots=True)
class Holdings:
    """What the asked projects hold together. `changes` is another value whenever indexed text of theirs has changed."""

    memories: int
    characters: int
    newest_at_epoch: int
    changes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class Row:
    """What a ranker needs of a memory: its place among others and its text, when long only the beginning.

    `ending` is the last character of its content.
    """

    seq: int
    id: str
    created_at_epoch: int
    superseded_by: str | None
    project_id: str
    server_session_id: str | None
    characters: int
    heading: str
    body: str
    neighbours: str
    ending: str


class FullText(Protocol):
    """The contract of a dialect's module."""

    def holdings(self, connection: Connection, scope: Scope) -> Holdings:
        """Return how much the asked projects hold."""

    def find(
        self,
        connection: Connection,
        scope: Scope,
        all_of: tuple[Phrases, ...],
        *,
        limit: int,
        neighbours: bool = False,
        filters: Filters = NO_FILTERS,
        newest_first: bool = False,
    ) -> Seqs:
        """Return at most `limit` memories that hold one phrase of each of `all_of`, the first or last by `seq`."""

    def beginning_with(self, connection: Connection, scope: Scope, beginning: str, *, limit: int) -> Seqs:
        """Return at most `limit` memories, the last by `seq`, that hold a word with this beginning."""

    def count(self, connection: Connection, scope: Scope, term: Phrases, *, limit: int) -> tuple[int, int]:
        """Return how many memories hold a term, at most `limit`, and the last `seq` that was counted."""

    def count_up_to(self, connection: Connection, scope: Scope, seq: int) -> int:
        """Return how many memories of the asked projects have at most this `seq`."""

    def allowing(self, scope: Scope, filters: Filters) -> TextClause:
        """Return the scope and the filters as a condition on `memory_items AS m`, to compose statements with."""

    def allowed(self, connection: Connection, scope: Scope, seqs: Seqs, filters: Filters) -> Seqs:
        """Return those memories that the filters let through."""

    def rows(self, connection: Connection, scope: Scope, seqs: Seqs) -> list[Row]:
        """Return what the ranker needs of memories, in the order of `seq`; unknown ones are left out."""

    def by_id(
        self, connection: Connection, scope: Scope, memory_ids: Sequence[str], filters: Filters
    ) -> dict[str, int]:
        """Return the `seq` by id of those memories that are of these projects and pass the filters."""

    def by_time(self, connection: Connection, scope: Scope, seqs: Sequence[int]) -> list[int]:
        """Return memories in the order of their times, oldest first; unknown ones are left out."""
