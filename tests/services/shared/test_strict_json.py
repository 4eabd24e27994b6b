"""Strict JSON decoding: exact types, no unknown keys, bounded nesting, errors that name the field."""

import time

import msgspec
import pytest

from app.errors import Invalid, Issue
from app.services.shared import strict_json


class Item(msgspec.Struct, forbid_unknown_fields=True, rename="camel"):
    item_name: str
    counts: list[int] = []


def test_value_is_decoded_into_the_type():
    """Names on the wire are camelCase."""
    assert strict_json.decode(b'{"itemName": "x", "counts": [10]}', Item) == Item("x", [10])


@pytest.mark.parametrize(
    ("text", "issue"),
    [
        (b'{"itemName": 7}', Issue("body.itemName", "Expected `str`, got `int`")),
        (b'{"itemName": "x", "counts": [1, "2"]}', Issue("body.counts[1]", "Expected `int`, got `str`")),
        (b"{}", Issue("body.itemName", "is required")),
        (b'{"itemName": "x", "other": 1}', Issue("body.other", "unknown field")),
        (b'{"itemName": "\\u0000"}', Issue("body", "must not contain NUL")),
        (b"{", Issue("body", "must be well-formed JSON in UTF-8")),
        (b"[" * 33 + b"]" * 33, Issue("body", "must not be nested deeper than 32 levels")),
    ],
)
def test_error_names_the_field_and_what_it_must_be(text: bytes, issue: Issue):
    """The value is not echoed."""
    with pytest.raises(Invalid) as failure:
        strict_json.decode(text, Item)

    assert (failure.value.issues, str(failure.value)) == ((issue,), f"{issue.path}: {issue.message}")


@pytest.mark.parametrize(
    "body",
    [b"[" * 40 + b'"' + b'\\"' * 1_000_000, b"[]" * 2_500_000, b'"",' * 1_500_000 + b"[" * 50, b"[" * 5_000_000],
)
def test_hostile_text_is_rejected_in_bounded_time(body: bytes):
    """No body within the size limit takes long to check."""
    started = time.perf_counter()
    with pytest.raises(Invalid):
        strict_json.decode(body, dict)

    assert time.perf_counter() - started < 2
