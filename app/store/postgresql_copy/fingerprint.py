"""Fingerprints a database before it is copied, and what arrived afterwards: a checksum per table, and changed rows."""

from collections.abc import Callable, Container, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Final

from sqlalchemy import Connection, Table

from app.store.models import memory_items, vector_outbox
from app.store.postgresql_copy import source
from app.store.postgresql_copy.checksum import Checksum
from app.store.postgresql_copy.coercion import RowCoercer, Values
from app.store.postgresql_copy.plan import TABLES, columns

COMPARED_TABLES: Final = (*TABLES, vector_outbox)
_MAX_LISTED: Final = 1_000

ReportRows = Callable[[int], None]
"""Called repeatedly with the number of rows read since the last call."""

ReportReplaced = Callable[[Table, Sequence[str], Values], None]
"""Called for a row that had to be changed, with the columns that were and the row as it is now."""

_ROWS_PER_REPORT: Final = 500


@dataclass(frozen=True, slots=True)
class ReplacedRow:
    """A row in which a value was replaced because PostgreSQL cannot store it."""

    table: str
    key: list[str]
    columns: list[str]


@dataclass(slots=True)
class Fingerprint:
    """What a database holds, with every value as PostgreSQL can store it."""

    checksums: dict[str, Checksum] = field(default_factory=dict)
    replaced: list[ReplacedRow] = field(default_factory=list)
    replaced_rows: int = 0
    replaced_memories: list[str] = field(default_factory=list)

    @property
    def rows(self) -> int:
        """Return the number of rows in all tables."""
        return sum(checksum.rows for checksum in self.checksums.values())

    @property
    def identity(self) -> str:
        """Return a hash that no other database has, nor this one once it has changed."""
        lines = (f"{name} {checksum.rows} {checksum.text}" for name, checksum in sorted(self.checksums.items()))
        return sha256("\n".join(lines).encode()).hexdigest()

    def add_replaced(self, table: Table, names: Sequence[str], values: Values) -> None:
        """Record a row that could not be stored as it was; the first 1,000 are listed."""
        row = dict(zip((column.name for column in columns(table)), values, strict=True))
        self.replaced_rows += 1
        if table is memory_items:
            self.replaced_memories.append(row["id"])
        if len(self.replaced) < _MAX_LISTED:
            key = [str(row[column.name]) for column in table.primary_key]
            self.replaced.append(ReplacedRow(table.name, key, list(names)))


def compute(connection: Connection, report_rows: ReportRows) -> Fingerprint:
    """Read every table once; outbox entries of memories that were changed to fit are not counted."""
    fingerprint = Fingerprint()
    for table in COMPARED_TABLES:
        fingerprint.checksums[table.name] = table_checksum(
            connection, table, report_rows, fingerprint.add_replaced, but=set(fingerprint.replaced_memories)
        )
    return fingerprint


def table_checksum(
    connection: Connection,
    table: Table,
    report_rows: ReportRows,
    report_replaced: ReportReplaced = lambda *_: None,
    *,
    but: Container[str] = (),
) -> Checksum:
    """Return the checksum of a table; `but` are memories whose outbox entries are left out."""
    checksum, coercer = Checksum(), RowCoercer(columns(table))
    with closing(source.stream(connection, table, columns(table))) as rows:
        for number, row in enumerate(rows, start=1):
            values, names = coercer.coerce(row)
            if names:
                report_replaced(table, names, values)
            if table is not vector_outbox or values[0] not in but:
                checksum.add(values)
            if number % _ROWS_PER_REPORT == 0:
                report_rows(_ROWS_PER_REPORT)
    return checksum
