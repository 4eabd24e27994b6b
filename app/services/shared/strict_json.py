"""Strict JSON decoding: `"10"`, `10.0` and `true` are not 10; rejects NUL, lone surrogates and deep nesting."""

import re
from functools import lru_cache
from typing import Any, Final

import msgspec

from app.errors import Invalid, Issue

MAX_NESTING: Final = 32

_PATH: Final = re.compile(r" - at `\$?(.*)`$")
_STRING: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_SQUARE: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_ESCAPED_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_FIELD: Final = re.compile(r"`(\w{1,100})`")
_ECHO: Final = re.compile(r"Invalid enum value .*", re.DOTALL)


def decode(body: bytes, type_: Any) -> Any:
    """Return a JSON text as a value of `type_`. Raises Invalid, which names the field and what it must be."""
    if _is_too_deep(body):
        raise Invalid.field("body", f"must not be nested deeper than {MAX_NESTING} levels")
    if b"\\u0000" in body and _ESCAPED_NUL.search(body):
        raise Invalid.field("body", "must not contain NUL")
    try:
        return _decoder(type_).decode(body)
    except msgspec.ValidationError as cause:
        raise _invalid(str(cause)) from cause
    except (msgspec.DecodeError, RecursionError) as cause:
        raise Invalid.field("body", "must be well-formed JSON in UTF-8") from cause


@lru_cache(maxsize=256)
def _decoder(type_: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(type_)


def _invalid(message: str) -> Invalid:
    """Turn msgspec's `Expected …, got … - at `$.limit`` into an error with the path of the field."""
    match = _PATH.search(message)
    path = "body" + (match.group(1) if match else "")
    reason = without_echo(_PATH.sub("", message))
    is_unknown, is_missing = "unknown field" in reason, "missing required field" in reason
    if is_unknown or is_missing:
        field = _FIELD.search(reason)
        path = f"{path}.{field.group(1) if field else ''}"
        reason = "unknown field" if is_unknown else "is required"
    return Invalid(f"{path}: {reason}", Issue(path, reason))


def without_echo(reason: str) -> str:
    """Return a message of msgspec without the value that was sent."""
    return _ECHO.sub("must be one of the documented values", reason)


def _is_too_deep(body: bytes) -> bool:
    """Say whether objects and arrays are nested too deep, by removing the innermost pairs MAX_NESTING times."""
    if body.count(b"[") + body.count(b"{") <= MAX_NESTING:
        return False
    brackets = _STRING.sub(b"", body).translate(_SQUARE, delete=_NO_BRACKETS)
    for _ in range(MAX_NESTING):
        brackets = brackets.replace(b"[]", b"")
    return b"[]" in brackets or brackets.count(b"[") > MAX_NESTING
