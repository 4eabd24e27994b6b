"""The size of a text in bytes, the same on both dialects."""

import pytest
from sqlalchemy import Text, cast, literal, null, select

from app.store.byte_length import byte_length
from app.store.database import Database


@pytest.mark.parametrize("text", ["", "plain", "Größe", "東京", "🙂", "e\u0301"])
def test_byte_length_is_that_of_utf_8(database: Database, text: str):
    """Characters outside ASCII count as what they take on disk."""
    with database.read() as connection:
        assert connection.scalar(select(byte_length(cast(literal(text), Text)))) == len(text.encode())


def test_null_has_no_byte_length(database: Database):
    """A sum over columns must replace it by 0."""
    with database.read() as connection:
        assert connection.scalar(select(byte_length(cast(null(), Text)))) is None
