"""Reads a database as it is: one snapshot, raw values, in key order, in constant memory."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Table, func, text, type_coerce
from sqlalchemy.types import NULLTYPE

from app.store.database import Database
from app.store.postgresql_copy.coercion import decode_utf8
from app.store.scope import unscoped

_ROWS_PER_FETCH: Final = 500


@contextmanager
def snapshot(database: Database) -> Iterator[Connection]:
    """Yield a connection that sees one snapshot for as long as needed, and can read text that is not UTF-8."""
    with database.read() as connection:
        if database.dialect == "postgresql":
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            yield connection
            return
        driver: Any = connection.connection.driver_connection
        original, driver.text_factory = driver.text_factory, decode_utf8
        try:
            yield connection
        finally:
            driver.text_factory = original


def stream(
    connection: Connection,
    table: Table,
    columns: Sequence[Column[Any]],
    *,
    where: ColumnElement[bool] | None = None,
    offset: int = 0,
) -> Generator[Sequence[Any], None, None]:
    """Yield the rows after the first `offset`; JSON comes as the stored text. The caller must close it."""
    statement = unscoped(table, *(type_coerce(column, NULLTYPE) for column in columns)).order_by(*table.primary_key)
    if where is not None:
        statement = statement.where(where)
    if offset:
        statement = statement.offset(offset)
    with connection.execute(statement.execution_options(yield_per=_ROWS_PER_FETCH)) as rows:
        yield from rows


def count(connection: Connection, table: Table) -> int:
    """Return the number of rows of a table."""
    return connection.scalar(unscoped(table, func.count()).select_from(table)) or 0


def highest_assigned_seq(connection: Connection, table: Table) -> int:
    """Return the highest `seq` that was ever assigned, or 0: one that was deleted must not be assigned again."""
    query = (
        "SELECT seq FROM sqlite_sequence WHERE name = :name"
        if connection.dialect.name == "sqlite"
        else "SELECT pg_sequence_last_value(pg_get_serial_sequence(:name, 'seq')::regclass)"
    )
    return connection.scalar(text(query), {"name": table.name}) or 0
