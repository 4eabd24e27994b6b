"""The tables of a legacy file as rows of named columns: what is there is looked up, never assumed.

Knows SQL and damaged pages, not what a row means.
"""

import sqlite3
from collections.abc import Collection, Iterator
from typing import Any

from app.legacy import values
from app.legacy.shapes import Failed, LegacyId

_FORMER_NAMES = {"claude_session_id": "content_session_id", "sdk_session_id": "memory_session_id"}
_LONGEST_SALVAGE = 1_000_000


class Row:
    """One row. An absent column reads as empty; every repair leaves a sentence in `warnings`."""

    __slots__ = ("_asked", "_columns", "legacy_id", "table", "unreadable", "warnings")

    def __init__(self, table: str, legacy_id: LegacyId, columns: dict[str, Any]) -> None:
        self.table = table
        self.legacy_id = legacy_id
        self.warnings: list[str] = []
        self.unreadable: dict[str, Any] = {}
        self._columns = columns
        self._asked: set[str] = set()

    def text(self, name: str) -> str | None:
        """The column's text, None when it is absent or blank."""
        return values.text(self._cell(name))

    def supply(self, name: str, value: str | None) -> None:
        """Fill a column from another table."""
        self._columns[name] = value

    def number(self, name: str) -> int | None:
        """The column's whole number, None when it holds anything else."""
        value = self._cell(name)
        return value if isinstance(value, int) else None

    def strings(self, name: str, *, separators: str) -> tuple[str, ...]:
        """The column's list of strings; a value that yields none is kept in `unreadable`."""
        raw = self._cell(name)
        items, warning = values.strings(raw, separators=separators)
        self._note(name, warning)
        if warning and not items:
            self.unreadable[name] = values.text(raw)
        return items

    def mapping(self, name: str) -> dict[str, Any]:
        """The column's JSON object."""
        found, warning = values.mapping(self._cell(name))
        self._note(name, warning)
        return found

    def moment(self, *names: str) -> int | None:
        """The first of these columns that holds a time, in epoch milliseconds."""
        for name in names:
            milliseconds, warning = values.epoch_ms(self._cell(name))
            self._note(name, warning)
            if milliseconds is not None:
                return milliseconds
        return None

    def rest(self, ignored: Collection[str]) -> dict[str, Any]:
        """Every filled column that was neither asked for yet nor is `ignored`: other versions have other columns."""
        return {
            name: values.clean(value)
            for name, value in self._columns.items()
            if name not in self._asked and name not in ignored and isinstance(value, str | int | float) and value != ""
        }

    def _cell(self, name: str) -> Any:
        self._asked.add(name)
        return self._columns.get(name)

    def _note(self, name: str, warning: str | None) -> None:
        if warning:
            self.warnings.append(f"{name}: {warning}")


def names(connection: sqlite3.Connection) -> frozenset[str]:
    """The names of the tables in the file."""
    return frozenset(name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))


def count(connection: sqlite3.Connection, table: str) -> int:
    """The number of rows in `table`, 0 when it is absent."""
    if table not in names(connection):
        return 0
    (number,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608  a name of ours
    return int(number)


def holds(connection: sqlite3.Connection, table: str, legacy_id: int) -> bool:
    """Say whether `table` is there and has a row of this id."""
    if table not in names(connection):
        return False
    return connection.execute(f"SELECT 1 FROM {table} WHERE rowid = ?", (legacy_id,)).fetchone() is not None  # noqa: S608


def rows(connection: sqlite3.Connection, table: str) -> Iterator[Row | Failed]:
    """The rows of `table` in the order in which they were written, none when it is absent.

    Where a page is damaged, the rows behind it are fetched one by one; those on it come as Failed.
    """
    if table not in names(connection):
        return
    last_id = 0
    try:
        for last_id, row in _select(connection, table, "", ()):  # noqa: B007  the salvage goes on from there
            yield row
    except sqlite3.DatabaseError as cause:
        yield from _salvage(connection, table, last_id + 1, cause)


def _select(
    connection: sqlite3.Connection, table: str, where: str, parameters: tuple[int, ...]
) -> Iterator[tuple[int, Row]]:
    cursor = connection.execute(f"SELECT rowid, * FROM {table} {where} ORDER BY rowid", parameters)  # noqa: S608
    columns = [_FORMER_NAMES.get(column[0], column[0]) for column in cursor.description[1:]]
    for rowid, *cells in cursor:
        named = dict(zip(columns, cells, strict=True))
        # A text id is the only lasting one: VACUUM may renumber rows whose id is no integer key.
        yield rowid, Row(table, named["id"] if isinstance(named.get("id"), int | str) else rowid, named)


def _salvage(
    connection: sqlite3.Connection, table: str, first_id: int, cause: sqlite3.DatabaseError
) -> Iterator[Row | Failed]:
    (last_id,) = connection.execute(f"SELECT max(rowid) FROM {table}").fetchone()  # noqa: S608
    if last_id - first_id > _LONGEST_SALVAGE:
        raise cause
    for legacy_id in range(first_id, last_id + 1):
        try:
            yield from (row for _, row in _select(connection, table, "WHERE rowid = ?", (legacy_id,)))
        except sqlite3.DatabaseError as damage:
            yield Failed(table, legacy_id, f"cannot be read: {damage}")
