"""Checksums of tables: independent of order, and sensitive to everything else."""

import pytest

from app.store.postgresql_copy.checksum import Checksum
from app.store.postgresql_copy.coercion import Values


def checksum(*rows: Values) -> Checksum:
    made = Checksum()
    for row in rows:
        made.add(row)
    return made


def test_order_of_the_rows_does_not_matter():
    """The two databases sort texts differently."""
    assert checksum(("a", 1), ("b", 2), ("c", None)) == checksum(("c", None), ("a", 1), ("b", 2))


@pytest.mark.parametrize(
    "other",
    [
        [("a", 1)],
        [("a", 1), ("b", 2), ("b", 2)],
        [("a", 1), ("b", None)],
        [("a", 1), ("b", "2")],
        [("a", 2), ("b", 1)],
        [("a", 1, None), ("b", 2)],
        [("a1", ""), ("b", 2)],
    ],
)
def test_any_other_rows_have_another_checksum(other: list[Values]):
    """Also where types differ, or values move between rows or columns."""
    assert checksum(*other).text != checksum(("a", 1), ("b", 2)).text


def test_equal_rows_do_not_cancel_each_other_out():
    """As they would with XOR."""
    assert checksum(("a",), ("a",)).text != checksum().text


def test_text_has_a_fixed_length():
    """An empty table included."""
    assert (checksum().text, len(checksum(("a",)).text)) == ("0" * 32, 32)
