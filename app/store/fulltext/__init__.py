"""Full-text search: finds and counts rows within the projects in scope; it does not score.

One contract, one module per dialect.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
import numpy.typing as npt
from sqlalchemy import Connection, TextClause

Seqs = npt.NDArray[np.int64]
"""Keys of memories (`memory_items.seq`), ascending and without duplicates."""

Phrases = tuple[tuple[str, ...], ...]
"""Alternatives, each a sequence of words. Words are plain text and never query syntax."""


@dataclass(frozen=True, slots=True)
class SearchScope:
    """A team, and those of its projects that are searched."""

    team_id: str
    project_ids: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MemoryFilters:
    """Restricts which memories match; an empty value or None does not. Times are epoch ms, `after <= t < before`.

    A file is a path or a folder: it matches that path and everything below it, or with `files_exact` only the path.
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


NO_FILTERS: Final = MemoryFilters()


@dataclass(frozen=True, slots=True)
class CorpusStatistics:
    """Totals of the projects in scope. `changes` is different whenever their indexed text has changed."""

    memories: int
    characters: int
    newest_at_epoch: int
    changes: tuple[tuple[str, int], ...]


@dataclass(frozen=True, slots=True)
class RankingRow:
    """What a ranker needs to know about a memory; of long texts only the beginning.

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
    context_text: str
    ending: str


class FullText(Protocol):
    """The contract of a dialect's module."""

    def statistics(self, connection: Connection, scope: SearchScope) -> CorpusStatistics:
        """Return the totals of the projects in scope."""

    def find(
        self,
        connection: Connection,
        scope: SearchScope,
        all_of: tuple[Phrases, ...],
        *,
        limit: int,
        in_context: bool = False,
        filters: MemoryFilters = NO_FILTERS,
        newest_first: bool = False,
    ) -> Seqs:
        """Return at most `limit` memories that contain a phrase of each of `all_of`, the first or last ones by `seq`.

        `in_context` searches their context text instead of their own.
        """

    def find_by_prefix(self, connection: Connection, scope: SearchScope, prefix: str, *, limit: int) -> Seqs:
        """Return at most `limit` memories, the last ones by `seq`, that contain a word with this prefix."""

    def count(self, connection: Connection, scope: SearchScope, term: Phrases, *, limit: int) -> tuple[int, int]:
        """Return the number of memories that contain a term, at most `limit`, and the last `seq` that was counted."""

    def count_through(self, connection: Connection, scope: SearchScope, seq: int) -> int:
        """Return the number of memories in scope up to and including this `seq`."""

    def condition(self, scope: SearchScope, filters: MemoryFilters) -> TextClause:
        """Return the scope and the filters as a condition on `memory_items AS m`, for use in other statements."""

    def matching(self, connection: Connection, scope: SearchScope, seqs: Seqs, filters: MemoryFilters) -> Seqs:
        """Return those of the memories that match the filters."""

    def ranking_rows(self, connection: Connection, scope: SearchScope, seqs: Seqs) -> list[RankingRow]:
        """Return what a ranker needs to know about memories, in the order of `seq`; unknown ones are left out."""

    def seqs_by_id(
        self, connection: Connection, scope: SearchScope, memory_ids: Sequence[str], filters: MemoryFilters
    ) -> dict[str, int]:
        """Return the `seq` by id of those of the memories that are in scope and match the filters."""

    def ordered_by_time(self, connection: Connection, scope: SearchScope, seqs: Sequence[int]) -> list[int]:
        """Return memories by creation time, oldest first; unknown ones are left out."""
