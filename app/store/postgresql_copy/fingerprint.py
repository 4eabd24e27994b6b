"""Takes stock of a database before it is copied, and again of what arrived: digests by table, and what did not fit."""

from collections.abc import Callable, Container, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from sqlalchemy import Connection, Table

from app.store.models import memory_items, vector_outbox
from app.store.postgresql_copy import source
from app.store.postgresql_copy.checksum import Digest
from app.store.postgresql_copy.coercion import Fitting, Values
from app.store.postgresql_copy.plan import TABLES, columns

COUNTED: Final = (*TABLES, vector_outbox)
_LISTED: Final = 1_000

GoOn = Callable[[int], None]
"""Told after some rows how many those were."""

Note = Callable[[Table, Sequence[str], Values], None]
"""Told of a row that did not fit: the columns in which it did not, and what it is now."""

_ROWS_A_WORD: Final = 500


@dataclass(frozen=True, slots=True)
class Replaced:
    """A row in which something had to be replaced, since PostgreSQL cannot keep it."""

    table: str
    key: list[str]
    columns: list[str]


@dataclass(slots=True)
class Stock:
    """What a database holds, all of its text as PostgreSQL can keep it."""

    digests: dict[str, Digest] = field(default_factory=dict)
    replaced: list[Replaced] = field(default_factory=list)
    replaced_rows: int = 0
    replaced_memories: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Return how many rows there are in all."""
        return sum(digest.rows for digest in self.digests.values())

    @property
    def identity(self) -> str:
        """Return what no other database has, nor this one once it has changed."""
        told = "\n".join(f"{name} {digest.rows} {digest.text}" for name, digest in sorted(self.digests.items()))
        return sha256(told.encode()).hexdigest()

    def note(self, table: Table, names: Sequence[str], values: Values) -> None:
        """Remember that a row could not be kept as it was."""
        row = dict(zip((column.name for column in columns(table)), values, strict=True))
        self.replaced_rows += 1
        if table is memory_items:
            self.replaced_memories.append(row["id"])
        if len(self.replaced) < _LISTED:
            key = [str(row[column.name]) for column in table.primary_key]
            self.replaced.append(Replaced(table.name, key, list(names)))


def take(connection: Connection, go_on: GoOn) -> Stock:
    """Read everything once; entries of the outbox for memories that were not kept as they were do not count."""
    stock = Stock()
    for table in COUNTED:
        stock.digests[table.name] = digest(connection, table, go_on, stock.note, but=set(stock.replaced_memories))
    return stock


def digest(
    connection: Connection,
    table: Table,
    go_on: GoOn,
    note: Note = lambda *_: None,
    *,
    but: Container[str] = (),
) -> Digest:
    """Return the digest of a table; `but` are memories whose entries in the outbox are left out."""
    made, fitting = Digest(), Fitting(columns(table))
    with closing(source.stream(connection, table, columns(table))) as rows:
        for number, row in enumerate(rows, start=1):
            values, names = fitting.fit(row)
            if names:
                note(table, names, values)
            if table is not vector_outbox or values[0] not in but:
                made.add(values)
            if number % _ROWS_A_WORD == 0:
                go_on(_ROWS_A_WORD)
    return made
