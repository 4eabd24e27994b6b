"""Strict query strings: a misspelt filter is an error, never "no filter". Errors do not echo the query."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from litestar.handlers import BaseRouteHandler
from litestar.params import QueryParameter
from litestar.types import Scope

from app.errors import Invalid

_BADLY_ENCODED: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class _Format(NamedTuple):
    """How a value must be written, and the error otherwise."""

    pattern: re.Pattern[str]
    message: str


_INTEGER: Final = _Format(re.compile(r"-?(0|[1-9][0-9]{0,17})"), "must be an integer")
_BOOLEAN: Final = _Format(re.compile(r"true|false"), "must be true or false")


class _Field(NamedTuple):
    """What a route accepts under one query key."""

    format: _Format | None
    is_repeatable: bool


def validate(scope: Scope) -> None:
    """Raise Invalid for keys that are unknown or repeated, for malformed values, and for an invalid encoding."""
    query = scope["query_string"]
    if not query or scope["route_handler"].opt.get("any_query"):
        return
    known = _fields(scope["route_handler"])
    seen: set[str] = set()
    for name, value in _pairs(query):
        field = known.get(name)
        if field is None:
            raise Invalid.field("query", f"unknown key; the known keys are: {', '.join(sorted(known)) or '(none)'}")
        if name in seen and not field.is_repeatable:
            raise Invalid.field(f"query.{name}", "must not be repeated")
        if field.format is not None and not field.format.pattern.fullmatch(value):
            raise Invalid.field(f"query.{name}", field.format.message)
        seen.add(name)


@lru_cache(maxsize=512)
def _fields(handler: BaseRouteHandler) -> dict[str, _Field]:
    fields = {}
    for name, field in handler.parsed_fn_signature.parameters.items():
        if isinstance(field.kwarg_definition, QueryParameter):
            fields[field.kwarg_definition.name or name] = _Field(_format_of(field), field.is_non_string_sequence)
    return fields


def _format_of(field: Any) -> _Format | None:
    types = {field.annotation, *(inner.annotation for inner in field.inner_types)}
    if bool in types:
        return _BOOLEAN
    return _INTEGER if int in types else None


def _pairs(query: bytes) -> Iterator[tuple[str, str]]:
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        yield _text(name), _text(value)


def _text(part: bytes) -> str:
    if _BADLY_ENCODED.search(part):
        raise Invalid.field("query", "must be percent-encoded correctly")
    try:
        text = unquote_to_bytes(part.replace(b"+", b" ")).decode()
    except UnicodeDecodeError as cause:
        raise Invalid.field("query", "must be UTF-8") from cause
    if "\0" in text:
        raise Invalid.field("query", "must not contain NUL")
    return text
