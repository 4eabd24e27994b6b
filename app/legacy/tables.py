"""The tables of a legacy file as rows of named columns. Which columns exist is looked up, never assumed.

Knows SQL and damaged pages, not what a row means.
"""

import sqlite3
from collections.abc import Collection, Iterator
from typing import Any

from app.legacy import values
from app.legacy.shapes import Failed, LegacyId

_FORMER_NAMES = {"claude_session_id": "content_session_id", "sdk_session_id": "memory_session_id"}
_LONGEST_SALVAGE = 1_000_000


class LegacyRow:
    """One row. An absent column reads as empty; every repair adds a sentence to `warnings`."""

    __slots__ = ("_columns", "_read", "legacy_id", "table", "unreadable", "warnings")

    def __init__(self, table: str, legacy_id: LegacyId, columns: dict[str, Any]) -> None:
        self.table = table
        self.legacy_id = legacy_id
        self.warnings: list[str] = []
        self.unreadable: dict[str, Any] = {}
        self._columns = columns
        self._read: set[str] = set()

    def text(self, name: str) -> str | None:
        """Return the text of a column, or None if it is absent or blank."""
        return values.text(self._cell(name))

    def supply(self, name: str, value: str | None) -> None:
        """Set a column to a value from another table."""
        self._columns[name] = value

    def number(self, name: str) -> int | None:
        """Return the integer in a column, or None for anything else."""
        value = self._cell(name)
        return value if isinstance(value, int) else None

    def strings(self, name: str, *, separators: str) -> tuple[str, ...]:
        """Return the list of strings in a column; a value that yields none is kept in `unreadable`."""
        raw = self._cell(name)
        items, warning = values.strings(raw, separators=separators)
        self._warn(name, warning)
        if warning and not items:
            self.unreadable[name] = values.text(raw)
        return items

    def mapping(self, name: str) -> dict[str, Any]:
        """Return the JSON object in a column."""
        content, warning = values.mapping(self._cell(name))
        self._warn(name, warning)
        return content

    def moment(self, *names: str) -> int | None:
        """Return the first time in these columns, in epoch milliseconds."""
        for name in names:
            milliseconds, warning = values.epoch_ms(self._cell(name))
            self._warn(name, warning)
            if milliseconds is not None:
                return milliseconds
        return None

    def rest(self, ignored: Collection[str]) -> dict[str, Any]:
        """Return the non-empty columns that are neither read yet nor `ignored`: columns differ between versions."""
        return {
            name: values.clean(value)
            for name, value in self._columns.items()
            if name not in self._read and name not in ignored and isinstance(value, str | int | float) and value != ""
        }

    def _cell(self, name: str) -> Any:
        self._read.add(name)
        return self._columns.get(name)

    def _warn(self, name: str, warning: str | None) -> None:
        if warning:
            self.warnings.append(f"{name}: {warning}")


def names(connection: sqlite3.Connection) -> frozenset[str]:
    """Return the names of the tables in the file."""
    return frozenset(name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'"))


def count(connection: sqlite3.Connection, table: str) -> int:
    """Return the number of rows in `table`, 0 if it is absent."""
    if table not in names(connection):
        return 0
    (number,) = connection.execute(f"SELECT count(*) FROM {table}").fetchone()  # noqa: S608  a name of ours
    return int(number)


def holds(connection: sqlite3.Connection, table: str, legacy_id: int) -> bool:
    """Say whether `table` exists and has a row with this id."""
    if table not in names(connection):
        return False
    return connection.execute(f"SELECT 1 FROM {table} WHERE rowid = ?", (legacy_id,)).fetchone() is not None  # noqa: S608


def rows(connection: sqlite3.Connection, table: str) -> Iterator[LegacyRow | Failed]:
    """Yield the rows of `table` in the order in which they were written, none if it is absent.

    After a damaged page, the remaining rows are fetched one by one; those on the page are yielded as Failed.
    """
    if table not in names(connection):
        return
    last_id = 0
    try:
        for last_id, row in _select(connection, table, "", ()):  # noqa: B007  the salvage continues from there
            yield row
    except sqlite3.DatabaseError as cause:
        yield from _salvage(connection, table, last_id + 1, cause)


def _select(
    connection: sqlite3.Connection, table: str, where: str, parameters: tuple[int, ...]
) -> Iterator[tuple[int, LegacyRow]]:
    cursor = connection.execute(f"SELECT rowid, * FROM {table} {where} ORDER BY rowid", parameters)  # noqa: S608
    columns = [_FORMER_NAMES.get(column[0], column[0]) for column in cursor.description[1:]]
    for rowid, *cells in cursor:
        named = dict(zip(columns, cells, strict=True))
        # Only a text id is stable here: VACUUM may renumber rows without an integer primary key.
        yield rowid, LegacyRow(table, named["id"] if isinstance(named.get("id"), int | str) else rowid, named)


def _salvage(
    connection: sqlite3.Connection, table: str, first_id: int, cause: sqlite3.DatabaseError
) -> Iterator[LegacyRow | Failed]:
    (last_id,) = connection.execute(f"SELECT max(rowid) FROM {table}").fetchone()  # noqa: S608
    if last_id - first_id > _LONGEST_SALVAGE:
        raise cause
    for legacy_id in range(first_id, last_id + 1):
        try:
            yield from (row for _, row in _select(connection, table, "WHERE rowid = ?", (legacy_id,)))
        except sqlite3.DatabaseError as damage:
            yield Failed(table, legacy_id, f"cannot be read: {damage}")
