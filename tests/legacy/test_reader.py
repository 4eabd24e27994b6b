"""Reading claude-mem databases of any version and condition: which rows are read, and which are skipped."""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from app.legacy import reader
from app.legacy.shapes import Failed, LegacyMemory, ReaderOptions, Skipped
from tests.legacy import builders
from tests.legacy.builders import MARCH
from tests.legacy.reading import read_all, read_one, read_sessions


def test_rows_are_read_in_their_original_order(path, source):
    """Rows of equal time and title keep the order in which they were written, and none is lost."""
    builders.add_session(source)
    for narrative in ("first", "second", "third"):
        builders.add_observation(source, "Same title", narrative=narrative)
    assert [entry.narrative for entry in read_all(path)] == ["first", "second", "third"]


def test_first_releases_are_read(path):
    """Their columns have other names, and there are no hashes, platforms, prompts or summaries."""
    with closing(builders.create(path, builders.FIRST)) as old:
        builders.insert(
            old,
            "sdk_sessions",
            claude_session_id="c",
            sdk_session_id="m",
            project="shop",
            started_at="2025-10-01T10:00:00Z",
            started_at_epoch=1_759_312_800_000,
            status="completed",
        )
        for text in ("free text", "other text"):
            builders.insert(
                old,
                "observations",
                sdk_session_id="m",
                project="shop",
                text=text,
                type="decision",
                created_at="2025-10-01T10:00:00Z",
                created_at_epoch=1_759_312_800_000,
            )
    (session,) = read_sessions(path)
    assert (session.content_session_id, session.memory_session_id, session.platform_source) == ("c", "m", "claude")
    assert [(entry.text, entry.session_id) for entry in read_all(path)] == [("free text", 1), ("other text", 1)]


@pytest.mark.parametrize("table", ["sdk_sessions", "session_summaries", "user_prompts", "schema_versions"])
def test_absent_table_counts_as_empty(path, source, table):
    """The other tables are read when one is missing."""
    builders.add_observation(source, "Retry storm")
    source.execute(f"DROP TABLE {table}")
    assert read_one(path).title == "Retry storm"


def test_internal_rows_are_skipped(path, source):
    """What claude-mem's observer wrote about itself is of no use to people."""
    builders.add_session(source, project="observer-sessions")
    builders.add_observation(source, "Bookkeeping", project="observer-sessions")
    assert read_sessions(path) == [Skipped("sdk_sessions", 1, "internal to claude-mem")]
    assert read_one(path) == Skipped("observations", 1, "internal to claude-mem")


def test_internal_rows_are_included_on_request(path, source):
    """There is an option for it."""
    builders.add_observation(source, "Bookkeeping", project="observer-sessions")
    assert read_one(path, ReaderOptions(internal=True)).title == "Bookkeeping"


def test_rows_of_other_devices_are_included(path, source):
    """Rows that a sync copied into this database belong to its owner."""
    builders.add_observation(source, "From the laptop", origin_device_id="laptop", origin_local_id="17")
    assert read_one(path).metadata["claudeMem"]["origin_device_id"] == "laptop"


def test_rows_of_other_devices_are_skipped_on_request(path, source):
    """They are left to the import of that device's own database."""
    builders.add_observation(source, "From the laptop", origin_device_id="laptop", origin_local_id="17")
    assert read_one(path, ReaderOptions(other_devices=False)) == Skipped(
        "observations", 1, "copied from another device"
    )


@pytest.mark.parametrize("columns", [{}, {"narrative": " \n"}, {"facts": "[]", "concepts": '[" "]', "text": "\x00"}])
def test_empty_row_is_skipped(path, source, columns):
    """A row without searchable text is of no use."""
    builders.add_observation(source, None, **columns)
    assert read_one(path) == Skipped("observations", 1, "empty")


def test_hashless_duplicates_are_skipped(path, source):
    """Of hashless rows with equal session, title and narrative the oldest is kept, whatever else they hold."""
    for facts in ('["a"]', '["b"]'):
        builders.add_observation(source, "Twice", narrative="The same words.", facts=facts)
    assert read_all(path)[1] == Skipped("observations", 2, "duplicate of row 1")


def test_hashless_duplicate_of_a_hashed_row_is_skipped(path, source):
    """The hash is computed like claude-mem's own: SHA-256 over session, title and narrative, joined by NUL."""
    builders.add_observation(source, "Twice", narrative="Same.", content_hash="1405aef659a6aac5")
    builders.add_observation(source, "Twice", narrative="Same.")
    assert isinstance(read_all(path)[1], Skipped)


def test_rows_with_different_hashes_are_both_kept(path, source):
    """claude-mem itself distinguished them."""
    for content_hash in ("aa", "bb"):
        builders.add_observation(source, "Twice", narrative="Same.", content_hash=content_hash)
    assert len([entry for entry in read_all(path) if isinstance(entry, LegacyMemory)]) == 2


def test_rows_after_a_damaged_page_are_read(path, source):
    """Only the rows on the page are lost, and each of them is reported."""
    for number in range(60):
        builders.add_observation(source, f"row {number}", narrative="x" * 1000)
    source.execute("PRAGMA wal_checkpoint(truncate)")
    source.close()
    noise_over_page(path, containing=b"row 30")
    entries = read_all(path)
    lost = [entry for entry in entries if isinstance(entry, Failed)]
    assert [entry.legacy_id for entry in entries] == list(range(1, 61))
    assert 31 in [entry.legacy_id for entry in lost]
    assert len(lost) <= 4


def noise_over_page(path: Path, *, containing: bytes, page_size: int = 4096) -> None:
    content = bytearray(path.read_bytes())
    start = content.index(containing) // page_size * page_size
    content[start : start + page_size] = b"\xfe" * page_size
    path.write_bytes(content)


def test_count_returns_the_number_of_rows(path, source):
    """A progress bar needs it, also for an absent table."""
    builders.add_session(source)
    builders.add_observation(source, "Retry storm")
    source.execute("DROP TABLE user_prompts")
    with reader.open_copy(path, ReaderOptions()) as database:
        assert [database.count(table) for table in ("sdk_sessions", "observations", "user_prompts")] == [1, 1, 0]


def test_open_copy_is_unlinked(path, source, tmp_path, monkeypatch):
    """A killed import leaves no copy of private data behind."""
    builders.add_observation(source, "Retry storm")
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with reader.open_copy(path, ReaderOptions()) as database:
        assert [file for file in folder.rglob("*") if file.is_file()] == []
        assert len(list(database.memories())) == 1
    assert list(folder.iterdir()) == []


def test_other_file_formats_are_rejected(path):
    """A text file is not a database."""
    path.write_text("not a database, " * 100)
    with (
        pytest.raises(reader.NotClaudeMem, match="not a readable SQLite database"),
        reader.open_copy(path, ReaderOptions()),
    ):
        pass


def test_database_of_another_program_is_rejected(path):
    """Without any of claude-mem's tables it is not imported as an empty one."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    with (
        pytest.raises(reader.NotClaudeMem, match="none of claude-mem's tables"),
        reader.open_copy(path, ReaderOptions()),
    ):
        pass


def test_memories_of_the_server_tables_are_read(path):
    """Those of claude-mem's own server, in the same file, reference their project and session."""
    with closing(builders.create(path, builders.CURRENT | builders.SERVER)) as source:
        builders.insert(source, "projects", id="p", name="shop", created_at_epoch=MARCH)
        builders.insert(
            source, "server_sessions", id="s", project_id="p", platform_source="codex", started_at_epoch=MARCH
        )
        builders.insert(
            source,
            "memory_items",
            id="m",
            project_id="p",
            server_session_id="s",
            kind="manual",
            type="note",
            narrative="Remember the storm.",
            created_at_epoch=MARCH,
        )
    entry = read_one(path)
    assert (entry.legacy_id, entry.kind, entry.project, entry.session_id) == ("m", "manual", "shop", "s")
    assert (entry.platform_source, entry.warnings, entry.metadata) == ("codex", (), {})
    assert [(session.legacy_id, session.project) for session in read_sessions(path)] == [("s", "shop")]


def test_copy_of_an_observation_in_the_server_tables_is_skipped(path):
    """claude-mem's server copied observations; only the original is read."""
    with closing(builders.create(path, builders.CURRENT | builders.SERVER)) as source:
        builders.add_observation(source, "Retry storm")
        builders.insert(source, "memory_items", id="m", project_id="p", title="Retry storm", legacy_observation_id=1)
    assert read_all(path)[1] == Skipped("memory_items", "m", "a copy of observation 1")


def test_copy_without_its_observation_is_read(path):
    """It is used when the original was deleted."""
    with closing(builders.create(path, builders.CURRENT | builders.SERVER)) as source:
        builders.insert(source, "memory_items", id="m", project_id="p", title="Retry storm", legacy_observation_id=1)
    assert read_one(path).title == "Retry storm"


def test_absent_file_is_an_error(path):
    """No file is created."""
    with pytest.raises(FileNotFoundError), reader.open_copy(path, ReaderOptions()):
        pass
    assert not path.exists()
