"""Values of any program become what PostgreSQL can store."""

from typing import Any

import pytest
from sqlalchemy import BigInteger, Boolean, Column, Integer, Text

from app.store.json_column import Json
from app.store.postgresql_copy.coercion import REPLACEMENT, RowCoercer, decode_utf8

TEXT = Column("column", Text)
JSON = Column("column", Json())


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (TEXT, None),
        (TEXT, "東京 🙂"),
        (JSON, '{"damaged": '),
        (Column("column", Integer), 2**31 - 1),
        (Column("column", BigInteger), -(2**63)),
    ],
)
def test_storable_value_is_copied_unchanged(column: Column[Any], value: Any):
    """And no column is reported."""
    assert RowCoercer([column]).coerce([value]) == ((value,), [])


@pytest.mark.parametrize(
    ("column", "value", "stored"),
    [
        (TEXT, "a\0b", f"a{REPLACEMENT}b"),
        (TEXT, b"a\xffb", f"a{REPLACEMENT}b"),
        (TEXT, decode_utf8(b"caf\xe9"), f"caf{REPLACEMENT}"),
        (TEXT, 7, "7"),
        (Column("column", Integer), 2**40, 2**31 - 1),
        (Column("column", BigInteger), -(2**70), -(2**63)),
        (Column("column", Integer, nullable=True), "text", None),
        (Column("column", Integer, nullable=False), "text", 0),
    ],
)
def test_other_value_is_replaced_and_its_column_reported(column: Column[Any], value: Any, stored: Any):
    """By the nearest one that the column can hold."""
    assert RowCoercer([column]).coerce([value]) == ((stored,), ["column"])


@pytest.mark.parametrize(("value", "stored"), [(0, False), (1, True), (None, None)])
def test_number_in_a_boolean_column_is_no_replacement(value: int | None, stored: bool | None):
    """SQLite stores booleans so; the driver for PostgreSQL wants real ones."""
    (coerced,), changed = RowCoercer([Column("column", Boolean)]).coerce([value])

    assert (coerced, type(coerced), changed) == (stored, type(stored), [])


def test_only_the_changed_columns_of_a_row_are_reported():
    """So that a report names what to look at."""
    columns = [Column("first", Text), Column("second", Text), Column("third", Text)]

    assert RowCoercer(columns).coerce(["a", "\0", "c"]) == (("a", REPLACEMENT, "c"), ["second"])
