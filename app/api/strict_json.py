"""Bodies, decoded strictly: `"10"`, `10.0` and `true` are not 10; NUL, lone surrogates and deep nesting are refused."""

import re
from functools import lru_cache
from typing import Any, Final

import msgspec

from app.errors import Invalid, Issue

MAX_NESTING: Final = 32

_PATH: Final = re.compile(r" - at `\$?(.*)`$")
_TOKENS: Final = re.compile(rb'"(?:[^"\\]|\\.)*"|[\[\]{}]', re.DOTALL)
_ESCAPED_NUL: Final = re.compile(rb"(?<!\\)(?:\\\\)*\\u0000")
_SHAPE: Final = re.compile(r"`(\w+)`")


def decode(body: bytes, wanted: Any) -> Any:
    """Return the body as a value of the type `wanted`; Invalid names the field and what is allowed."""
    if _nesting(body) > MAX_NESTING:
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
    reason = _PATH.sub("", message)
    if "unknown field" in reason or "missing required field" in reason:
        field = _SHAPE.search(reason)
        path, reason = f"{path}.{field.group(1) if field else ''}", reason.split("`")[0].strip()
    return Invalid(f"{path}: {reason}", Issue(path, reason))


def _nesting(body: bytes) -> int:
    """Return how deep objects and arrays are nested, counted exactly only where it could be too deep."""
    if body.count(b"[") + body.count(b"{") <= MAX_NESTING:
        return 0
    depth = deepest = 0
    for token in _TOKENS.finditer(body):
        mark = token.group()
        if mark in b"[{":
            depth += 1
            deepest = max(deepest, depth)
        elif mark in b"]}":
            depth -= 1
    return deepest
