"""Reads a database as it is: one snapshot, raw values, in the order of the keys, at constant memory."""

from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from sqlalchemy import Column, ColumnElement, Connection, Table, func, text, type_coerce
from sqlalchemy.types import NULLTYPE

from app.store.database import Database
from app.store.postgresql_copy.coercion import readable
from app.store.scope import every

_ROWS_AT_ONCE: Final = 500


@contextmanager
def snapshot(database: Database) -> Iterator[Connection]:
    """Yield a connection that sees one moment for as long as it takes, and texts that are not UTF-8, too."""
    with database.read() as connection:
        if database.dialect == "postgresql":
            connection.execute(text("SET LOCAL statement_timeout = 0"))
            connection.execute(text("SET LOCAL idle_in_transaction_session_timeout = 0"))
            yield connection
            return
        driver: Any = connection.connection.driver_connection
        usual, driver.text_factory = driver.text_factory, readable
        try:
            yield connection
        finally:
            driver.text_factory = usual


def stream(
    connection: Connection,
    table: Table,
    columns: Sequence[Column[Any]],
    *,
    where: ColumnElement[bool] | None = None,
    behind: int = 0,
) -> Generator[Sequence[Any], None, None]:
    """Yield the rows behind the first `behind` ones; JSON comes as the text that is stored. To be closed."""
    statement = every(table, *(type_coerce(column, NULLTYPE) for column in columns)).order_by(*table.primary_key)
    if where is not None:
        statement = statement.where(where)
    if behind:
        statement = statement.offset(behind)
    with connection.execute(statement.execution_options(yield_per=_ROWS_AT_ONCE)) as rows:
        yield from rows


def count(connection: Connection, table: Table) -> int:
    """Return how many rows a table has."""
    return connection.scalar(every(table, func.count()).select_from(table)) or 0


def highest_given(connection: Connection, table: Table) -> int:
    """Return the highest `seq` that was ever given, 0 for none: one that was deleted is not given again."""
    asked = (
        "SELECT seq FROM sqlite_sequence WHERE name = :name"
        if connection.dialect.name == "sqlite"
        else "SELECT pg_sequence_last_value(pg_get_serial_sequence(:name, 'seq')::regclass)"
    )
    return connection.scalar(text(asked), {"name": table.name}) or 0
