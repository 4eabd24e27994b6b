"""Single values of claude-mem columns, intact and damaged."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from app.legacy import values

MARCH = 1_772_439_300_000


@pytest.mark.parametrize(
    "written",
    [
        MARCH,
        str(MARCH),
        MARCH // 1000,
        float(MARCH // 1000),
        MARCH * 1000,
        "2026-03-02T08:15:00Z",
        "2026-03-02T08:15:00.000+00:00",
        "2026-03-02T09:15:00+01:00",
        "2026-03-02 08:15:00",
    ],
)
def test_all_time_formats_give_the_same_millisecond(written):
    """Seconds, milliseconds, microseconds and ISO 8601 agree."""
    assert values.epoch_ms(written)[0] == MARCH


@pytest.mark.parametrize("written", [0, -5, 1e300, float("inf"), float("nan"), "soon", "0001-01-01T00:00:00"])
def test_invalid_time_is_reported(written):
    """An impossible time gives None and a warning."""
    milliseconds, warning = values.epoch_ms(written)
    assert milliseconds is None
    assert warning is not None


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('["a","b"]', ("a", "b")),
        ('["a, b"]', ("a, b",)),
        ("src/money.py", ("src/money.py",)),
        ("gotcha, pattern", ("gotcha", "pattern")),
        ("a.py|b.py", ("a.py", "b.py")),
        ("a.py | b, c.py", ("a.py", "b, c.py")),
        ('["unterminated', ("unterminated",)),
        ('["a","b', ("a", "b")),
        ('["a","b",', ("a", "b")),
        ("[a, b]", ("a", "b")),
        ('["a" "b"]', ("a", "b")),
        ('"a.py"', ("a.py",)),
        ('"[\\"a\\",\\"b\\"]"', ("a", "b")),
        ("42", ("42",)),
        ('["a",null,7,{"b":1}]', ("a", "7", '{"b": 1}')),
        ('{"a":1}', ()),
        ("null", ()),
        ("[]", ()),
        ("  ", ()),
        (None, ()),
        (b"a.py", ("a.py",)),
    ],
)
def test_list_column_is_read_as_its_writer_meant_it(written, meant):
    """JSON arrays, plain paths, comma and pipe lists and truncated arrays all give their items."""
    assert values.strings(written, separators="|\n,")[0] == meant


@pytest.mark.parametrize("written", ["a.py", "a, b", '["cut', '{"a":1}', '"a"', "42", "null", "[1]"])
def test_guessed_list_is_reported(written):
    """Anything but a JSON array of strings has a warning."""
    assert values.strings(written, separators="|,")[1]


@pytest.mark.parametrize("written", ['["a","b"]', "[]", "", None])
def test_valid_list_has_no_warning(written):
    """A JSON array of strings, or nothing at all."""
    assert values.strings(written, separators="|,")[1] is None


def test_sentence_keeps_its_commas():
    """Only the separators of the column split it."""
    assert values.strings("Jitter is full, capped at 30 s", separators="|\n")[0] == ("Jitter is full, capped at 30 s",)


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ('{"a":1}', {"a": 1}),
        ("{not json", {"raw": "{not json"}),
        ('{"a":1' + "0" * 30 + "}", {"a": "1" + "0" * 30}),
        ("[1]", {"raw": [1]}),
        (None, {}),
    ],
)
def test_metadata_is_never_lost(written, meant):
    """Anything but a JSON object is kept as it is."""
    assert values.mapping(written)[0] == meant


@given(st.text() | st.binary() | st.integers() | st.floats() | st.none())
def test_every_value_can_be_read(value):
    """Whatever SQLite can hold is read, and contains neither NUL nor a lone surrogate afterwards."""
    items, _ = values.strings(value, separators="|\n,")
    read = [values.text(value) or "", *items, repr(values.mapping(value)), repr(values.epoch_ms(value))]
    assert "\x00" not in "".join(read)
    assert "".join(read).encode()
