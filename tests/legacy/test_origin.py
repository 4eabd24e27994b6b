"""Which files count as the same database."""

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from app.legacy import reader
from app.legacy.shapes import ReaderOptions
from tests.legacy import builders


def origin_of(path: Path) -> str:
    with reader.open_copy(path, ReaderOptions()) as database:
        return database.origin


@pytest.fixture
def sample(tmp_path):
    return builders.sample(tmp_path / "claude-mem.db")


@pytest.fixture
def copy(sample, tmp_path):
    return Path(shutil.copyfile(sample, tmp_path / "another-name.db"))


def change(path: Path, statement: str) -> None:
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute(statement)


def test_copy_has_the_same_origin(sample, copy):
    """The name and location of the file do not matter."""
    assert origin_of(copy) == origin_of(sample)


@pytest.mark.parametrize(
    "growth",
    [
        "INSERT INTO sdk_sessions (content_session_id, project) VALUES ('later', 'shop')",
        "INSERT INTO observations (title, project) VALUES ('later', 'shop')",
        "INSERT INTO schema_versions (version, applied_at) VALUES (50, '2027-01-01T00:00:00Z')",
        "UPDATE sdk_sessions SET status = 'completed', memory_session_id = 'other', custom_title = 'named'",
        "ALTER TABLE observations ADD COLUMN mood TEXT",
        "DELETE FROM user_prompts",
    ],
)
def test_copy_that_has_grown_has_the_same_origin(sample, copy, growth):
    """New rows, new schema versions and changed sessions do not change the origin."""
    change(copy, growth)
    assert origin_of(copy) == origin_of(sample)


@pytest.mark.parametrize(
    "difference",
    [
        "UPDATE schema_versions SET applied_at = '2025-11-02T07:00:00.001Z'",
        "UPDATE sdk_sessions SET content_session_id = 'somebody-else'",
        "UPDATE observations SET title = 'Something else'",
    ],
)
def test_other_database_has_another_origin(sample, copy, difference):
    """Databases that began differently are distinct, even with equal row ids."""
    change(copy, difference)
    assert origin_of(copy) != origin_of(sample)
