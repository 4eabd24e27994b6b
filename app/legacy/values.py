"""Converts the values of claude-mem columns into what their writer meant. Pure functions.

Each returns the value and, if it had to guess, a warning.
"""

import json
import re
from datetime import UTC, datetime
from typing import Any

_LATEST_MS = 253_402_300_799_999  # the end of the year 9999
_UNITS = (("seconds", 1e11, 1000.0), ("milliseconds", _LATEST_MS, 1.0), ("microseconds", _LATEST_MS * 1e3, 0.001))
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_NUL_OR_SURROGATE = re.compile("[\x00\ud800-\udfff]")


def clean(value: Any) -> Any:
    """Return a JSON value that any database can store: no NUL, U+FFFD for lone surrogates, huge integers as text."""
    if isinstance(value, str):
        return _NUL_OR_SURROGATE.sub(lambda match: "" if match[0] == "\x00" else "�", value)
    if isinstance(value, list):
        return [clean(item) for item in value]
    if isinstance(value, dict):
        return {clean(key): clean(item) for key, item in value.items()}
    return str(value) if isinstance(value, int) and value.bit_length() > 63 else value


def text(value: object) -> str | None:
    """Return the text of a value, or None if it is blank."""
    if value is None:
        return None
    content: str = clean(value.decode(errors="replace") if isinstance(value, bytes) else str(value))
    return content if content.strip() else None


def epoch_ms(value: object) -> tuple[int | None, str | None]:
    """Return a time in epoch milliseconds, from seconds, milliseconds, microseconds or ISO 8601, or None.

    The unit of a number follows from its size: 1e11 is the year 5138 in seconds and 1973 in milliseconds. A time
    without a zone is UTC.
    """
    content = text(value)
    if content is None:
        return None, None
    try:
        return _from_number(float(content))
    except (ValueError, OverflowError):
        return _from_iso(content.strip())


def _from_number(number: float) -> tuple[int | None, str | None]:
    for unit, bound, factor in _UNITS:
        if 0 < number < bound:
            warning = None if unit == "milliseconds" else f"the time {number:.0f} was read as {unit}"
            return round(number * factor), warning
    return None, f"the time {number:g} is out of range"


def _from_iso(content: str) -> tuple[int | None, str | None]:
    try:
        moment = datetime.fromisoformat(content)
    except ValueError:
        return None, f"the time {content[:40]!r} cannot be parsed"
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    milliseconds = round(moment.timestamp() * 1000)
    return (
        (milliseconds, None) if 0 < milliseconds <= _LATEST_MS else (None, f"the time {content[:40]!r} is out of range")
    )


def strings(value: object, *, separators: str) -> tuple[tuple[str, ...], str | None]:
    """Return the items of a value that should be a JSON array of strings.

    Other text is split at the first of `separators` that occurs in it; without any it is a single item.
    """
    content = text(value)
    if content is None:
        return (), None
    try:
        parsed = json.loads(content)
    except (ValueError, RecursionError):
        return _from_damaged(content.strip(), separators)
    if isinstance(parsed, list):
        return _items(parsed)
    if isinstance(parsed, str):
        items, _ = strings(parsed, separators=separators)
        return items, "a JSON string instead of an array"
    if isinstance(parsed, dict):
        return (), "a JSON object instead of an array"
    return (() if parsed is None else (content.strip(),)), "a JSON value instead of an array"


def _items(parsed: list[Any]) -> tuple[tuple[str, ...], str | None]:
    items = [
        item if isinstance(item, str) else json.dumps(item, ensure_ascii=False) for item in parsed if item is not None
    ]
    warning = None if all(isinstance(item, str) for item in parsed) else "an array that does not hold only strings"
    return _stripped(clean(items)), warning


def _from_damaged(content: str, separators: str) -> tuple[tuple[str, ...], str | None]:
    if content.startswith("["):
        return _from_truncated_array(content, separators), "a damaged JSON array, read as far as possible"
    for separator in separators:
        if separator in content:
            return _stripped(content.split(separator)), "a plain list instead of JSON"
    return _stripped([content]), "plain text instead of JSON"


def _from_truncated_array(content: str, separators: str) -> tuple[str, ...]:
    for ending in ("]", '"]'):
        try:
            items, _ = _items(json.loads(content.rstrip(", ") + ending))
        except (ValueError, RecursionError):
            continue
        return items
    quoted = _QUOTED.findall(content)
    if quoted:
        return _stripped(quoted)
    bare, _ = _from_damaged(content.strip("[] "), separators)
    return bare


def _stripped(items: list[str]) -> tuple[str, ...]:
    return tuple(stripped for item in items if (stripped := item.strip()))


def mapping(value: object) -> tuple[dict[str, Any], str | None]:
    """Return the object of a value that should be JSON; anything else is kept under the key `raw`."""
    content = text(value)
    if content is None:
        return {}, None
    try:
        parsed = clean(json.loads(content))
    except (ValueError, RecursionError):
        return {"raw": content}, "not JSON, kept as text"
    return (parsed, None) if isinstance(parsed, dict) else ({"raw": parsed}, "not a JSON object")
