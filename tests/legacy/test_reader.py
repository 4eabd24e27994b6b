"""What comes out of a claude-mem database of any age and condition."""

import sqlite3
import tempfile
from contextlib import closing
from pathlib import Path

import pytest

from app.legacy import reader, shapes
from app.legacy.shapes import Failed, LegacyMemory, LegacySession, Rules, Skipped
from tests.legacy import builders
from tests.legacy.builders import MARCH

PLAIN = Rules()


@pytest.fixture
def path(tmp_path):
    return tmp_path / "claude-mem.db"


@pytest.fixture
def source(path):
    with closing(builders.create(path)) as connection:
        yield connection


def read_all(path: Path, rules: Rules = PLAIN) -> list:
    with reader.opened(path, rules) as database:
        return list(database.memories())


def read_one(path: Path, rules: Rules = PLAIN):
    (entry,) = read_all(path, rules)
    return entry


def sessions(path: Path, rules: Rules = PLAIN) -> list:
    with reader.opened(path, rules) as database:
        return list(database.sessions())


def test_an_observation_comes_with_every_field(path, source):
    """A sound row gives all that claude-mem knew about it."""
    builders.add_session(source, platform_source="codex")
    builders.add_observation(
        source,
        "Retry storm",
        subtitle="No jitter",
        text="free text",
        narrative="All workers retried at once.",
        facts='["Jitter is full"]',
        concepts='["gotcha"]',
        files_read='["a.py"]',
        files_modified='["b.py","c.py"]',
        metadata='{"ticket": 7}',
        prompt_number=3,
    )
    assert read_one(path) == LegacyMemory(
        kind="observation",
        legacy_table="observations",
        legacy_id=1,
        project="shop",
        session_id=1,
        platform_source="codex",
        created_at_epoch_ms=MARCH,
        type="bugfix",
        title="Retry storm",
        subtitle="No jitter",
        text="free text",
        narrative="All workers retried at once.",
        facts=("Jitter is full",),
        concepts=("gotcha",),
        files_read=("a.py",),
        files_modified=("b.py", "c.py"),
        metadata={"ticket": 7, "claudeMem": {"prompt_number": 3, "discovery_tokens": 0}},
    )


def test_a_summary_becomes_a_readable_narrative(path, source):
    """The filled parts of a summary follow each other under their names, its request is the title."""
    builders.add_session(source)
    builders.add_summary(
        source, "Stop the storm\nby Friday", learned="Jitter helps", next_steps="Watch it", files_edited='["b.py"]'
    )
    summary = read_one(path)
    assert (summary.kind, summary.type, summary.title) == ("summary", "summary", "Stop the storm")
    assert summary.narrative == "Request: Stop the storm\nby Friday\nLearned: Jitter helps\nNext steps: Watch it"
    assert summary.files_modified == ("b.py",)


def test_a_prompt_keeps_its_text_and_takes_the_project_of_its_session(path, source):
    """A prompt names no project itself."""
    builders.add_session(source, project="客服助手")
    builders.add_prompt(source, "Please stop the storm")
    prompt = read_one(path)
    assert (prompt.kind, prompt.text, prompt.project) == ("prompt", "Please stop the storm", "客服助手")
    assert prompt.warnings == ()


def test_a_session_comes_with_its_ids_times_and_title(path, source):
    """A sound session row gives all that claude-mem knew about it."""
    builders.add_session(source, custom_title="Storm", status="completed", completed_at_epoch=MARCH + 5)
    assert sessions(path) == [
        LegacySession(
            legacy_table="sdk_sessions",
            legacy_id=1,
            project="shop",
            content_session_id="content-one",
            memory_session_id="memory-one",
            platform_source="claude",
            title="Storm",
            status="completed",
            started_at_epoch_ms=MARCH,
            completed_at_epoch_ms=MARCH + 5,
            metadata={},
        )
    ]


def test_rows_come_in_their_original_order(path, source):
    """Equal times and titles keep the order in which they were written, and every row stays."""
    builders.add_session(source)
    for narrative in ("first", "second", "third"):
        builders.add_observation(source, "Same title", narrative=narrative)
    assert [entry.narrative for entry in read_all(path)] == ["first", "second", "third"]


def test_the_first_releases_are_read(path):
    """Other column names, no hashes, no platform, no prompts and summaries: what is there comes in."""
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
    (session,) = sessions(path)
    assert (session.content_session_id, session.memory_session_id, session.platform_source) == ("c", "m", "claude")
    assert [(entry.text, entry.session_id) for entry in read_all(path)] == [("free text", 1), ("other text", 1)]


def test_unknown_columns_of_newer_versions_are_kept(path, source):
    """A column that nobody knows yet goes to the metadata."""
    source.execute("ALTER TABLE observations ADD COLUMN mood TEXT")
    builders.add_session(source)
    builders.add_observation(source, "Retry storm", mood="calm")
    assert read_one(path).metadata["claudeMem"]["mood"] == "calm"


@pytest.mark.parametrize("table", ["sdk_sessions", "session_summaries", "user_prompts", "schema_versions"])
def test_an_absent_table_is_an_empty_one(path, source, table):
    """Each of the other tables is read when one is missing."""
    builders.add_observation(source, "Retry storm")
    source.execute(f"DROP TABLE {table}")
    assert read_one(path).title == "Retry storm"


def test_damaged_columns_are_read_and_named(path, source):
    """A plain path, a comma list, a cut-off array and broken metadata still give their content."""
    builders.add_session(source)
    builders.add_observation(
        source,
        "Retry storm",
        files_read="a.py",
        concepts="gotcha, pattern",
        facts='["cut',
        metadata="{no",
        files_modified='{"a":1}',
    )
    entry = read_one(path)
    assert (entry.files_read, entry.concepts, entry.facts) == (("a.py",), ("gotcha", "pattern"), ("cut",))
    assert entry.metadata["raw"] == "{no"
    assert entry.metadata["claudeMem"]["files_modified"] == '{"a":1}'
    assert {warning.split(":")[0] for warning in entry.warnings} == {
        "files_read",
        "concepts",
        "facts",
        "metadata",
        "files_modified",
    }


def test_an_orphan_keeps_its_project(path, source):
    """A memory whose session is gone stays in the project that it names, and says which session it lost."""
    builders.add_observation(source, "Orphan", memory_session_id="gone")
    entry = read_one(path)
    assert (entry.project, entry.session_id, entry.metadata["claudeMem"]["session"]) == ("shop", None, "gone")
    assert entry.warnings == ("session: gone is not in this database",)


def test_a_prompt_without_any_session_goes_to_the_unknown_project(path, source):
    """Nothing says where it belongs, and it is kept all the same."""
    builders.add_prompt(source, "Where did my session go?", session_db_id=None, content_session_id="lost")
    assert read_one(path).project == shapes.UNKNOWN_PROJECT


def test_a_prompt_finds_its_session_by_its_content_id(path, source):
    """Before prompts pointed to a session row they named the session."""
    builders.add_session(source, "one", project="elsewhere")
    builders.add_session(source, "two")
    builders.add_prompt(source, "hello", session_db_id=None, content_session_id="content-two")
    assert read_one(path).session_id == 2


def test_a_merged_project_is_followed(path, source):
    """A row that was merged belongs to the project it was merged into, and remembers the old one."""
    builders.add_session(source)
    builders.add_observation(source, "Merged", merged_into_project="shop-main")
    entry = read_one(path)
    assert (entry.project, entry.metadata["claudeMem"]["project"]) == ("shop-main", "shop")
    assert entry.metadata["claudeMem"]["session"] == "memory-one"


def test_an_empty_project_is_that_of_the_session(path, source):
    """A row that names no project goes where its session is, with a warning."""
    builders.add_session(source)
    builders.add_observation(source, "Nowhere", project=" ")
    entry = read_one(path)
    assert entry.project == "shop"
    assert entry.warnings == ("project: none is named, so it goes to shop",)


@pytest.mark.parametrize("written", [MARCH, MARCH // 1000, str(MARCH), "2026-03-02T08:15:00Z"])
def test_times_agree_however_they_are_written(path, source, written):
    """Seconds where milliseconds belong, and text where numbers belong, mean the same moment."""
    builders.add_session(source)
    builders.add_observation(source, "Retry storm", created_at_epoch=written)
    assert read_one(path).created_at_epoch_ms == MARCH


def test_a_row_without_a_number_has_its_written_time(path, source):
    """The ISO column stands in for an absent epoch."""
    builders.add_session(source)
    builders.add_observation(source, "Retry storm", created_at_epoch=None, created_at="2026-03-02T08:15:00Z")
    assert read_one(path).created_at_epoch_ms == MARCH


def test_a_row_without_any_time_has_that_of_its_session(path, source):
    """It stays near what it belongs to, with a warning."""
    builders.add_session(source, started_at_epoch=MARCH - 1)
    builders.add_observation(source, "Retry storm", created_at_epoch=None)
    entry = read_one(path)
    assert entry.created_at_epoch_ms == MARCH - 1
    assert entry.warnings


def test_internal_rows_are_left_out(path, source):
    """What claude-mem's observer wrote about itself is not for people."""
    builders.add_session(source, project="observer-sessions")
    builders.add_observation(source, "Bookkeeping", project="observer-sessions")
    assert sessions(path) == [Skipped("sdk_sessions", 1, "internal to claude-mem")]
    assert read_one(path) == Skipped("observations", 1, "internal to claude-mem")


def test_internal_rows_come_in_on_request(path, source):
    """A switch brings them in."""
    builders.add_observation(source, "Bookkeeping", project="observer-sessions")
    assert read_one(path, Rules(internal=True)).title == "Bookkeeping"


def test_rows_of_other_devices_come_in(path, source):
    """What a sync brought to this database belongs to its owner."""
    builders.add_observation(source, "From the laptop", origin_device_id="laptop", origin_local_id="17")
    assert read_one(path).metadata["claudeMem"]["origin_device_id"] == "laptop"


def test_rows_of_other_devices_stay_out_on_request(path, source):
    """A switch leaves them to the import of that device's own database."""
    builders.add_observation(source, "From the laptop", origin_device_id="laptop", origin_local_id="17")
    assert read_one(path, Rules(other_devices=False)) == Skipped("observations", 1, "copied from another device")


@pytest.mark.parametrize("columns", [{}, {"narrative": " \n"}, {"facts": "[]", "concepts": '[" "]', "text": "\x00"}])
def test_an_empty_row_is_left_out(path, source, columns):
    """A row without a word to find has nothing to remember."""
    builders.add_observation(source, None, **columns)
    assert read_one(path) == Skipped("observations", 1, "empty")


def test_repeats_from_before_the_hash_are_left_out(path, source):
    """Of hashless rows with one session, title and narrative the oldest stays, whatever else they hold."""
    for facts in ('["a"]', '["b"]'):
        builders.add_observation(source, "Twice", narrative="The same words.", facts=facts)
    assert read_all(path)[1] == Skipped("observations", 2, "repeats row 1")


def test_a_hashless_repeat_of_a_hashed_row_is_left_out(path, source):
    """claude-mem's own hash, SHA-256 over session, title and narrative joined by NUL, is told to be the same."""
    builders.add_observation(source, "Twice", narrative="Same.", content_hash="1405aef659a6aac5")
    builders.add_observation(source, "Twice", narrative="Same.")
    assert isinstance(read_all(path)[1], Skipped)


def test_rows_with_different_hashes_both_stay(path, source):
    """Where claude-mem itself told two rows apart, they are two."""
    for content_hash in ("aa", "bb"):
        builders.add_observation(source, "Twice", narrative="Same.", content_hash=content_hash)
    assert len([entry for entry in read_all(path) if isinstance(entry, LegacyMemory)]) == 2


def test_text_that_no_store_can_hold_is_cleaned(path, source):
    """NUL characters go, bytes that are no UTF-8 become the replacement character."""
    builders.add_observation(source, "nul\x00byte")
    source.execute("UPDATE observations SET narrative = CAST(x'66ff6f' AS TEXT)")
    entry = read_one(path)
    assert (entry.title, entry.narrative) == ("nulbyte", "f�o")


def test_rows_behind_a_damaged_page_are_read(path, source):
    """A page of noise costs the rows on it, each named, and none of the others."""
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


def test_counts_are_those_of_the_tables(path, source):
    """A progress bar knows how many rows there will be, also of a table that is absent."""
    builders.add_session(source)
    builders.add_observation(source, "Retry storm")
    source.execute("DROP TABLE user_prompts")
    with reader.opened(path, Rules()) as database:
        assert [database.count(table) for table in ("sdk_sessions", "observations", "user_prompts")] == [1, 1, 0]


def test_an_open_copy_has_no_name(path, source, tmp_path, monkeypatch):
    """An import that is killed leaves no copy of somebody's memory behind."""
    builders.add_observation(source, "Retry storm")
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    with reader.opened(path, PLAIN) as database:
        assert [file for file in folder.rglob("*") if file.is_file()] == []
        assert len(list(database.memories())) == 1
    assert list(folder.iterdir()) == []


def test_a_file_of_another_kind_is_refused(path):
    """Text is no database."""
    path.write_text("not a database, " * 100)
    with pytest.raises(reader.NotClaudeMem, match="not a readable SQLite database"), reader.opened(path, Rules()):
        pass


def test_a_database_of_another_program_is_refused(path):
    """A database without any of claude-mem's tables is not imported as an empty one."""
    with closing(sqlite3.connect(path)) as other:
        other.execute("CREATE TABLE bookmarks (url TEXT)")
    with pytest.raises(reader.NotClaudeMem, match="none of claude-mem's tables"), reader.opened(path, Rules()):
        pass


def test_memories_of_the_newer_server_tables_come_too(path):
    """What claude-mem's own server kept in the same file has its project and session by reference."""
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
    assert [(session.legacy_id, session.project) for session in sessions(path)] == [("s", "shop")]


def test_a_copy_of_an_observation_in_the_newer_tables_is_left_out(path):
    """claude-mem's server copied observations; the original stands for both."""
    with closing(builders.create(path, builders.CURRENT | builders.SERVER)) as source:
        builders.add_observation(source, "Retry storm")
        builders.insert(source, "memory_items", id="m", project_id="p", title="Retry storm", legacy_observation_id=1)
    assert read_all(path)[1] == Skipped("memory_items", "m", "a copy of observation 1")


def test_a_copy_outlives_its_observation(path):
    """Where the original is gone, the copy comes in."""
    with closing(builders.create(path, builders.CURRENT | builders.SERVER)) as source:
        builders.insert(source, "memory_items", id="m", project_id="p", title="Retry storm", legacy_observation_id=1)
    assert read_one(path).title == "Retry storm"


def test_an_absent_file_is_an_error(path):
    """Nothing is made where nothing was."""
    with pytest.raises(FileNotFoundError), reader.opened(path, Rules()):
        pass
    assert not path.exists()
