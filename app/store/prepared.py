"""Prepared statements for the hot paths: composed in SQLAlchemy Core, compiled once per dialect, run by the driver.

Core builds and hashes a statement on each execution, which costs more than SQLite takes to answer it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, TypeVar

import psycopg
from sqlalchemy import ColumnElement, Connection, Dialect, Executable, Table, insert, update
from sqlalchemy.sql import Select

from app.store.engines import as_sqlalchemy_error, pipelining
from app.store.engines.pipelining import Statement
from app.store.engines.postgresql import FIRST

T = TypeVar("T")


class _Compiled:
    """The SQL of one dialect, with the converters of its parameters and columns."""

    def __init__(self, statement: Executable, dialect: Dialect, column_keys: Sequence[str] | None) -> None:
        compiled = statement.compile(dialect=dialect, column_keys=column_keys)  # type: ignore[attr-defined]
        self.sql = str(compiled)
        self.names: Sequence[str] | None = compiled.positiontup
        binds = compiled.binds.items()
        self.constants = {name: bind.value for name, bind in binds if not bind.required and bind.value is not None}
        binders = {name: bind.type.dialect_impl(dialect).bind_processor(dialect) for name, bind in binds}
        self.binders = {name: binder for name, binder in binders.items() if binder is not None}
        columns = statement.selected_columns if isinstance(statement, Select) else ()
        self.readers = tuple(column.type.dialect_impl(dialect).result_processor(dialect, None) for column in columns)

    def bind(self, values: Mapping[str, Any]) -> Any:
        """Return the driver's parameters: a tuple where the dialect's are positional, else a mapping."""
        parameters = {**self.constants, **values}
        for name, binder in self.binders.items():
            parameters[name] = binder(parameters[name])
        return parameters if self.names is None else tuple(parameters[name] for name in self.names)


class PreparedStatement(Generic[T]):
    """A statement that is compiled when first used; each row is returned as `into(*columns)`."""

    def __init__(self, statement: Executable, into: Callable[..., T], column_keys: Sequence[str] | None = None) -> None:
        """Wrap a statement; `into` takes the selected columns in order, `column_keys` are the columns it sets."""
        self._statement = statement
        self._column_keys = column_keys
        self._into = into
        self._compiled: dict[str, _Compiled] = {}

    def first(self, connection: Connection, values: Mapping[str, Any]) -> T | None:
        """Return the first row, or None."""
        compiled = self._for(connection)
        row = execute(connection, compiled.sql, compiled.bind(values)).fetchone()
        return None if row is None else self._convert(compiled, row)

    def all(self, connection: Connection, values: Mapping[str, Any]) -> list[T]:
        """Return all rows, in the statement's order."""
        compiled = self._for(connection)
        rows = execute(connection, compiled.sql, compiled.bind(values)).fetchall()
        return [self._convert(compiled, row) for row in rows]

    def run(self, connection: Connection, values: Mapping[str, Any]) -> None:
        """Execute a write. On PostgreSQL it may be sent only with the next statement, which then raises its error."""
        compiled = self._for(connection)
        statement = Statement(compiled.sql, compiled.bind(values))
        if pipelining.is_open(connection):
            pipelining.queue(connection, statement)
        else:
            execute(connection, *statement)

    def _for(self, connection: Connection) -> _Compiled:
        name = connection.dialect.name
        compiled = self._compiled.get(name)
        if compiled is None:
            compiled = self._compiled[name] = _Compiled(self._statement, connection.dialect, self._column_keys)
        return compiled

    def _convert(self, compiled: _Compiled, row: Sequence[Any]) -> T:
        return self._into(
            *[value if read is None else read(value) for read, value in zip(compiled.readers, row, strict=True)]
        )


def execute(connection: Connection, sql: str, parameters: Any) -> Any:
    """Run SQL on the driver's connection, inside the open transaction; errors are raised as SQLAlchemy's."""
    if pipelining.is_open(connection):
        return pipelining.execute(connection, Statement(sql, parameters))
    try:
        if (first := connection.info.get(FIRST)) is not None:
            cursor: Any = psycopg.ClientCursor(connection.connection.driver_connection)  # type: ignore[arg-type]
            cursor.execute(f"{first}; {sql}", parameters)
            cursor.nextset()
        else:
            cursor = connection.connection.cursor()
            cursor.execute(sql, parameters)
    except connection.dialect.loaded_dbapi.Error as failure:
        raise as_sqlalchemy_error(failure, connection, sql, parameters) from failure
    return cursor


def prepare_update(table: Table, where: ColumnElement[bool], *omitted: str) -> PreparedStatement[tuple[Any, ...]]:
    """Return an UPDATE of all columns of a table except `omitted`, for the rows that match `where`."""
    names = [column.name for column in table.columns if column.name not in omitted]
    return PreparedStatement(update(table).where(where), tuple, names)


def prepare_insert(table: Table, *omitted: str) -> PreparedStatement[tuple[Any, ...]]:
    """Return an INSERT of all columns of a table except `omitted`."""
    names = [column.name for column in table.columns if column.name not in omitted]
    return PreparedStatement(insert(table), tuple, names)
