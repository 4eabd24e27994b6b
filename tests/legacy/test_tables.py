"""Rows of a legacy file by the names of their columns, whichever of them exist."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing

import pytest

from app.legacy import tables
from app.legacy.tables import LegacyRow


@pytest.fixture
def file() -> Iterator[sqlite3.Connection]:
    with closing(sqlite3.connect(":memory:")) as connection:
        yield connection


def row(**columns: object) -> LegacyRow:
    return LegacyRow("observations", 1, columns)


def test_absent_table_has_no_rows(file: sqlite3.Connection):
    """Releases differ in which tables they have."""
    assert (tables.count(file, "user_prompts"), tables.holds(file, "user_prompts", 1)) == (0, False)
    assert list(tables.rows(file, "user_prompts")) == []


def test_renamed_columns_have_their_current_names(file: sqlite3.Connection):
    """What wrote the row does not matter to what reads it."""
    file.execute("CREATE TABLE sdk_sessions (id INTEGER PRIMARY KEY, claude_session_id TEXT, sdk_session_id TEXT)")
    file.execute("INSERT INTO sdk_sessions VALUES (7, 'content', 'memory')")
    (read,) = tables.rows(file, "sdk_sessions")

    assert (read.legacy_id, read.text("content_session_id"), read.text("memory_session_id")) == (7, "content", "memory")
    assert tables.holds(file, "sdk_sessions", 7)


def test_row_is_identified_by_its_own_id_even_if_that_is_a_text(file: sqlite3.Connection):
    """SQLite may renumber rows without an integer key."""
    file.execute("CREATE TABLE memory_items (id TEXT PRIMARY KEY)")
    file.executemany("INSERT INTO memory_items VALUES (?)", [("b",), ("a",)])

    assert [read.legacy_id for read in tables.rows(file, "memory_items")] == ["b", "a"]


def test_absent_column_reads_as_empty_without_a_warning():
    """It is not damage."""
    empty = row()

    assert (empty.text("title"), empty.number("n"), empty.moment("at")) == (None, None, None)
    assert (empty.strings("facts", separators="\n"), empty.mapping("metadata")) == ((), {})
    assert empty.warnings == []


def test_unreadable_list_is_kept_and_its_column_named():
    """So that nothing is lost without a trace."""
    damaged = row(facts='{"a": 1}')

    assert (damaged.strings("facts", separators=""), damaged.unreadable) == ((), {"facts": '{"a": 1}'})
    assert damaged.warnings == ["facts: a JSON object instead of an array"]


def test_first_readable_time_is_used():
    """One that cannot be read is reported, and the next column tried."""
    entry = row(created_at_epoch="never", created_at="2026-05-20T00:00:00Z")

    assert entry.moment("created_at_epoch", "created_at") == 1_779_235_200_000
    assert [warning.split(":")[0] for warning in entry.warnings] == ["created_at_epoch"]


def test_columns_that_nobody_read_are_returned_in_the_end():
    """Columns that a later release adds reach the metadata; empty ones do not."""
    entry = row(title="read", new_column="kept", number=0, blank="", nothing=None, binary=b"x", ignored="no")
    entry.text("title")

    assert entry.rest({"ignored"}) == {"new_column": "kept", "number": 0}


def test_number_stored_as_text_is_no_number():
    """Guessing is left to times."""
    assert (row(n=3).number("n"), row(n="3").number("n"), row(n=3.5).number("n")) == (3, None, None)
