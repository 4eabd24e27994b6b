"""Converts the values of a row to what PostgreSQL can store, and reports which columns had to be changed.

SQLite stores whatever a program wrote: NUL characters, bytes that are not UTF-8, text in a column of numbers. JSON is
text here, and is copied unchanged even where it is damaged.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, Boolean, Column, Integer

Values = tuple[Any, ...]

REPLACEMENT: Final = "\ufffd"
_UNSTORABLE: Final = re.compile("[\0\ud800-\udfff]")


class RowCoercer:
    """Coerces rows that have these columns."""

    def __init__(self, columns: Sequence[Column[Any]]) -> None:
        self._names = [column.name for column in columns]
        self._coercers = [_coercer_for(column) for column in columns]

    def coerce(self, row: Sequence[Any]) -> tuple[Values, list[str]]:
        """Return the row as it can be stored, and the names of the columns whose values had to be changed."""
        values = tuple([coerce(value) for coerce, value in zip(self._coercers, row, strict=True)])
        if values == tuple(row):
            return values, []
        before_and_after = zip(self._names, row, values, strict=True)
        return values, [name for name, before, after in before_and_after if before != after]


def decode_utf8(raw: bytes) -> str:
    """Decode bytes that ought to be UTF-8; invalid ones become lone surrogates, which coerce() then replaces."""
    return raw.decode("utf-8", "surrogateescape")


def _coercer_for(column: Column[Any]) -> Callable[[Any], Any]:
    if isinstance(column.type, Boolean):
        return lambda value: None if value is None else bool(value)
    if isinstance(column.type, Integer):
        is_wide = isinstance(column.type, BigInteger)
        return _integer_coercer(bits=64 if is_wide else 32, fallback=None if column.nullable else 0)
    return _coerce_text


def _coerce_text(value: Any) -> Any:
    if value is None:
        return None
    text = value if isinstance(value, str) else decode_utf8(value) if isinstance(value, bytes) else str(value)
    if text.isascii() and "\0" not in text:
        return text
    return _UNSTORABLE.sub(REPLACEMENT, text) if _UNSTORABLE.search(text) else text


def _integer_coercer(*, bits: int, fallback: int | None) -> Callable[[Any], int | None]:
    lowest, highest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def coerce(value: Any) -> int | None:
        if value is None:
            return None
        return min(max(value, lowest), highest) if isinstance(value, int) else fallback

    return coerce
