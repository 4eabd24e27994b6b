"""Reading the databases in the shared folder. Skipped with a reason where that folder is absent."""

import hashlib
from collections import Counter

import pytest

from app.legacy import reader
from app.legacy.shapes import LegacyMemory, ReaderOptions
from tests import SHARED

FOLDER = SHARED / "fixtures" / "legacy"

pytestmark = pytest.mark.skipif(not FOLDER.is_dir(), reason=f"no shared fixtures at {FOLDER}; set CMEM_SHARED")


def outcomes(name: str) -> Counter[str]:
    with reader.open_copy(FOLDER / name, ReaderOptions()) as database:
        entries = [*database.sessions(), *database.memories()]
    return Counter(entry.legacy_table for entry in entries)


def test_clean_database_is_read_without_warnings():
    """Every row of an intact database is read, in its four projects."""
    with reader.open_copy(FOLDER / "claude-mem.db", ReaderOptions()) as database:
        memories = [entry for entry in database.memories() if isinstance(entry, LegacyMemory)]
        sessions = list(database.sessions())
    kinds = Counter(memory.kind for memory in memories)
    assert (len(sessions), kinds) == (9, {"observation": 27, "summary": 9, "prompt": 14})
    assert {memory.project for memory in memories} == {
        "payments-api",
        "客服助手",
        "infra/edge.router",
        "モバイルアプリ",
    }
    assert [entry for entry in [*sessions, *memories] if entry.warnings] == []


def test_every_row_of_the_dirty_database_has_an_outcome():
    """Rows in the write-ahead log are included."""
    expected = {"observations": 33, "session_summaries": 9, "user_prompts": 15, "sdk_sessions": 10}
    assert outcomes("dirty.db") == expected


def test_faulty_rows_of_the_dirty_database_are_reported():
    """Each row that was repaired or skipped has a warning."""
    with reader.open_copy(FOLDER / "dirty.db", ReaderOptions()) as database:
        named = {
            (entry.legacy_table, entry.legacy_id)
            for entry in database.memories()
            if not isinstance(entry, LegacyMemory) or entry.warnings
        }
    faulty = {("observations", number) for number in (1, 2, 3, 4, 6, 7, 28, 29, 30, 31, 32, 33)}
    assert named == faulty | {("user_prompts", 15)}


def test_shared_files_are_not_changed():
    """Reading changes no byte in the folder."""

    def state() -> dict[str, str]:
        return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in FOLDER.iterdir()}

    before = state()
    outcomes("dirty.db")
    assert state() == before
