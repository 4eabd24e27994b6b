"""Bodies, decoded strictly: `"10"`, `10.0` and `true` are not 10; NUL, lone surrogates and deep nesting are refused."""

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


def decode(body: bytes, wanted: Any) -> Any:
    """Return the body as a value of the type `wanted`; Invalid names the field and what is allowed."""
    if _is_too_deep(body):
        raise Invalid.field("body", f"nested deeper than {MAX_NESTING}")
    if b"\\u0000" in body and _ESCAPED_NUL.search(body):
        raise Invalid.field("body", "text must not contain NUL")
    try:
        return _decoder(wanted).decode(body)
    except msgspec.ValidationError as cause:
        raise _named(str(cause)) from cause
    except (msgspec.DecodeError, RecursionError) as cause:
        raise Invalid.field("body", "not well-formed JSON in UTF-8") from cause


@lru_cache(maxsize=256)
def _decoder(wanted: Any) -> msgspec.json.Decoder[Any]:
    return msgspec.json.Decoder(wanted)


def _named(message: str) -> Invalid:
    """Turn msgspec's `Expected …, got … - at `$.limit`` into an error with the path of the field."""
    found = _PATH.search(message)
    path = "body" + (found.group(1) if found else "")
    reason = without_echo(_PATH.sub("", message))
    if "unknown field" in reason or "missing required field" in reason:
        field = _FIELD.search(reason)
        path, reason = f"{path}.{field.group(1) if field else ''}", reason.split("`")[0].strip()
    return Invalid(f"{path}: {reason}", Issue(path, reason))


def without_echo(reason: str) -> str:
    """Return one of msgspec's reasons without the value that was sent."""
    return _ECHO.sub("not one of the allowed values", reason)


def _is_too_deep(body: bytes) -> bool:
    """Say whether objects and arrays are nested too deep, by removing the innermost pairs as often as is allowed."""
    if body.count(b"[") + body.count(b"{") <= MAX_NESTING:
        return False
    brackets = _STRING.sub(b"", body).translate(_SQUARE, delete=_NO_BRACKETS)
    for _ in range(MAX_NESTING):
        brackets = brackets.replace(b"[]", b"")
    return b"[]" in brackets or brackets.count(b"[") > MAX_NESTING
