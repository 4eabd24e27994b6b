"""What is copied and in which order: parents before children, and `superseded_by` once every memory is there."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Table
from sqlalchemy.dialects import postgresql

from app.store.models import memory_items, metadata, project_statistics, vector_outbox
from app.store.postgresql_copy.coercion import Values

DERIVED: Final = (project_statistics, vector_outbox)
"""Written by triggers when memories are."""

TABLES: Final = tuple(table for table in metadata.sorted_tables if table not in DERIVED)

_CLAIMS: Final = ("claimed_by", "claimed_until_epoch")


def columns(table: Table) -> tuple[Column[Any], ...]:
    """Return the columns that are copied and compared; claims on the outbox ended with the old server."""
    return tuple(column for column in table.columns if table is not vector_outbox or column.name not in _CLAIMS)


@dataclass(frozen=True, slots=True)
class Step:
    """One pass over a table of the source, in the order of its key."""

    name: str
    table: Table
    columns: tuple[Column[Any], ...]
    write: Callable[[Connection, Sequence[Values]], None]
    where: ColumnElement[bool] | None = None


def _insert_step(table: Table, *, without: Sequence[Column[Any]] = (), conflict: str = "") -> Step:
    copied = tuple(column for column in columns(table) if column not in without)
    names = ", ".join(column.name for column in copied)
    statement = f"INSERT INTO {table.name} ({names}) SELECT * FROM {_unnest(copied)}{conflict}"
    return Step(table.name, table, copied, lambda connection, rows: _run(connection, statement, rows))


def _supersession_step() -> Step:
    """Return the second pass over memories: one may be superseded by another that comes later."""
    copied = (memory_items.c.seq, memory_items.c.superseded_by)
    statement = (
        f"UPDATE memory_items SET superseded_by = given.superseded_by FROM {_unnest(copied)}"
        " AS given(seq, superseded_by) WHERE memory_items.seq = given.seq"
    )
    is_superseded = memory_items.c.superseded_by.is_not(None)
    return Step(
        "supersessions", memory_items, copied, lambda connection, rows: _run(connection, statement, rows), is_superseded
    )


def _unnest(copied: Sequence[Column[Any]]) -> str:
    """Return SQL for rows passed as one array per column: one statement per batch, so that triggers run once."""
    return f"unnest({', '.join(f'%b::{column.type.compile(dialect=_DIALECT)}[]' for column in copied)})"


def _run(connection: Connection, statement: str, rows: Sequence[Values]) -> None:
    if rows:
        connection.exec_driver_sql(statement, tuple(list(column) for column in zip(*rows, strict=True)))


_DIALECT: Final = postgresql.dialect()  # type: ignore[no-untyped-call]

STEPS: Final = (
    *(_insert_step(table, without=(memory_items.c.superseded_by,)) for table in TABLES),
    _supersession_step(),
)
OUTBOX: Final = _insert_step(vector_outbox, conflict=" ON CONFLICT (memory_id) DO NOTHING")
