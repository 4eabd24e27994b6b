"""Makes the values of a row such as PostgreSQL can keep, and tells in which columns something had to be replaced.

SQLite keeps whatever a program wrote: NUL, bytes that are no UTF-8, text in a column of numbers. JSON is text here, and
stays as it is where it is damaged.
"""

import re
from collections.abc import Callable, Sequence
from typing import Any, Final

from sqlalchemy import BigInteger, Boolean, Column, Integer

Values = tuple[Any, ...]

REPLACEMENT: Final = "\ufffd"
_UNFIT: Final = re.compile("[\0\ud800-\udfff]")
_TEXT_OF_BYTES: Final = ("utf-8", "surrogateescape")


class Fitting:
    """Fits the rows of these columns."""

    def __init__(self, columns: Sequence[Column[Any]]) -> None:
        self._names = [column.name for column in columns]
        self._fitters = [_fitter(column) for column in columns]

    def fit(self, row: Sequence[Any]) -> tuple[Values, list[str]]:
        """Return the row as it can be kept, and the names of the columns in which that differs from what was there."""
        values = tuple([fitter(value) for fitter, value in zip(self._fitters, row, strict=True)])
        if values == tuple(row):
            return values, []
        before_and_after = zip(self._names, row, values, strict=True)
        return values, [name for name, before, after in before_and_after if before != after]


def readable(raw: bytes) -> str:
    """Return the text of bytes that ought to be UTF-8; what is not becomes lone surrogates, which are then replaced."""
    return raw.decode(*_TEXT_OF_BYTES)


def _fitter(column: Column[Any]) -> Callable[[Any], Any]:
    if isinstance(column.type, Boolean):
        return lambda value: None if value is None else bool(value)
    if isinstance(column.type, Integer):
        is_wide = isinstance(column.type, BigInteger)
        return _number(bits=64 if is_wide else 32, instead=None if column.nullable else 0)
    return _text


def _text(value: Any) -> Any:
    if value is None:
        return None
    text = value if isinstance(value, str) else readable(value) if isinstance(value, bytes) else str(value)
    if text.isascii() and "\0" not in text:
        return text
    return _UNFIT.sub(REPLACEMENT, text) if _UNFIT.search(text) else text


def _number(*, bits: int, instead: int | None) -> Callable[[Any], int | None]:
    lowest, highest = -(1 << (bits - 1)), (1 << (bits - 1)) - 1

    def fit(value: Any) -> int | None:
        if value is None:
            return None
        return min(max(value, lowest), highest) if isinstance(value, int) else instead

    return fit
