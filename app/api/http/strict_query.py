"""Queries, read strictly: a misspelt filter is an error and never "no filter". Nothing of a query is echoed."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple
from urllib.parse import unquote_to_bytes

from litestar.handlers import BaseRouteHandler
from litestar.params import QueryParameter
from litestar.types import Scope

from app.errors import Invalid

_INTEGER: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")
_BOOLEAN: Final = re.compile(r"true|false")
_BADLY_ENCODED: Final = re.compile(rb"%(?![0-9A-Fa-f]{2})")


class _Field(NamedTuple):
    """What a route takes under one query key."""

    written: re.Pattern[str] | None
    repeatable: bool


def require(scope: Scope) -> None:
    """Raise Invalid for keys that are unknown, repeated or badly encoded, and for values written in another form."""
    query = scope["query_string"]
    if not query or scope["route_handler"].opt.get("any_query"):
        return
    known = _fields(scope["route_handler"])
    seen: set[str] = set()
    for name, value in _pairs(query):
        field = known.get(name)
        if field is None:
            raise Invalid.field("query", f"unknown key; allowed are {', '.join(sorted(known)) or 'none'}")
        if name in seen and not field.repeatable:
            raise Invalid.field(f"query.{name}", "given more than once")
        if field.written is not None and not field.written.fullmatch(value):
            raise Invalid.field(f"query.{name}", "not written as an integer or as true or false")
        seen.add(name)


@lru_cache(maxsize=512)
def _fields(handler: BaseRouteHandler) -> dict[str, _Field]:
    fields = {}
    for name, field in handler.parsed_fn_signature.parameters.items():
        if isinstance(field.kwarg_definition, QueryParameter):
            written = _writing(field)
            fields[field.kwarg_definition.name or name] = _Field(written, field.is_non_string_sequence)
    return fields


def _writing(field: Any) -> re.Pattern[str] | None:
    kinds = {field.annotation, *(inner.annotation for inner in field.inner_types)}
    if bool in kinds:
        return _BOOLEAN
    return _INTEGER if int in kinds else None


def _pairs(query: bytes) -> Iterator[tuple[str, str]]:
    for pair in query.split(b"&"):
        name, _, value = pair.partition(b"=")
        yield _text(name), _text(value)


def _text(part: bytes) -> str:
    if _BADLY_ENCODED.search(part):
        raise Invalid.field("query", "badly percent-encoded")
    try:
        text = unquote_to_bytes(part.replace(b"+", b" ")).decode()
    except UnicodeDecodeError as cause:
        raise Invalid.field("query", "not UTF-8") from cause
    if "\0" in text:
        raise Invalid.field("query", "text must not contain NUL")
    return text
