"""Conditions on the contents of JSON columns, the same on both dialects."""

import json

import pytest
from sqlalchemy import Text, cast, literal, select

from app.store.database import Database
from app.store.json_search import holds_pair, lists_any


@pytest.mark.parametrize(
    ("content", "is_match"),
    [
        ('{"author": "ann"}', True),
        ('{"other": 1, "author": "ann"}', True),
        ('{"author": "anna"}', False),
        ('{"editor": "ann"}', False),
        ('{"deep": {"author": "ann"}}', False),
        ('{"author": ["ann"]}', False),
        ('{"author": null}', False),
        ('["author", "ann"]', False),
        ('{"author": "ann"', False),
        ("", False),
    ],
)
def test_object_holds_a_pair_only_at_its_top_level(database: Database, content: str, is_match: bool):
    """Damaged text holds nothing and is no error."""
    with database.read() as connection:
        condition = holds_pair(cast(literal(content), Text), literal("author"), literal("ann"))
        assert bool(connection.scalar(select(condition))) is is_match


@pytest.mark.parametrize(
    ("content", "is_match"),
    [
        ('["x", "b"]', True),
        ('["ab"]', False),
        ('[["a"]]', False),
        ("[]", False),
        ('["a"', False),
    ],
)
def test_list_is_matched_by_any_whole_element(database: Database, content: str, is_match: bool):
    """A part of a text is no element."""
    with database.read() as connection:
        condition = lists_any(cast(literal(content), Text), literal(json.dumps(["a", "b"])))
        assert bool(connection.scalar(select(condition))) is is_match
