"""Which fields the columns of a claude-mem row become, also for rows with missing or damaged values."""

import pytest

from app.legacy import shapes
from app.legacy.shapes import LegacyMemory, LegacySession
from tests.legacy import builders
from tests.legacy.builders import MARCH
from tests.legacy.reading import read_one, read_sessions


def test_observation_is_read_with_every_field(path, source):
    """An intact row keeps everything that claude-mem knew."""
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


def test_summary_becomes_a_readable_narrative(path, source):
    """Its non-empty parts follow each other under their names; its request is the title."""
    builders.add_session(source)
    builders.add_summary(
        source, "Stop the storm\nby Friday", learned="Jitter helps", next_steps="Watch it", files_edited='["b.py"]'
    )
    summary = read_one(path)
    assert (summary.kind, summary.type, summary.title) == ("summary", "summary", "Stop the storm")
    assert summary.narrative == "Request: Stop the storm\nby Friday\nLearned: Jitter helps\nNext steps: Watch it"
    assert summary.files_modified == ("b.py",)


def test_prompt_takes_the_project_of_its_session(path, source):
    """Prompts do not name a project themselves."""
    builders.add_session(source, project="客服助手")
    builders.add_prompt(source, "Please stop the storm")
    prompt = read_one(path)
    assert (prompt.kind, prompt.text, prompt.project) == ("prompt", "Please stop the storm", "客服助手")
    assert prompt.warnings == ()


def test_session_is_read_with_ids_times_and_title(path, source):
    """An intact session row keeps everything that claude-mem knew."""
    builders.add_session(source, custom_title="Storm", status="completed", completed_at_epoch=MARCH + 5)
    assert read_sessions(path) == [
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


def test_unknown_columns_of_newer_versions_are_kept(path, source):
    """An unknown column goes to the metadata."""
    source.execute("ALTER TABLE observations ADD COLUMN mood TEXT")
    builders.add_session(source)
    builders.add_observation(source, "Retry storm", mood="calm")
    assert read_one(path).metadata["claudeMem"]["mood"] == "calm"


def test_damaged_columns_are_read_with_a_warning(path, source):
    """A plain path, a comma list, a truncated array and broken metadata still give their content."""
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


def test_orphan_keeps_its_project(path, source):
    """A memory without its session stays in the project it names, and its metadata has the id of the session."""
    builders.add_observation(source, "Orphan", memory_session_id="gone")
    entry = read_one(path)
    assert (entry.project, entry.session_id, entry.metadata["claudeMem"]["session"]) == ("shop", None, "gone")
    assert entry.warnings == ("session: gone is not in this database",)


def test_prompt_without_a_session_goes_to_the_unknown_project(path, source):
    """Nothing says where it belongs, but it is kept."""
    builders.add_prompt(source, "Where did my session go?", session_db_id=None, content_session_id="lost")
    assert read_one(path).project == shapes.UNKNOWN_PROJECT


def test_prompt_finds_its_session_by_content_id(path, source):
    """Older prompts reference the session id instead of a session row."""
    builders.add_session(source, "one", project="elsewhere")
    builders.add_session(source, "two")
    builders.add_prompt(source, "hello", session_db_id=None, content_session_id="content-two")
    assert read_one(path).session_id == 2


def test_merged_project_is_followed(path, source):
    """A merged row belongs to the project it was merged into, and its metadata has the old one."""
    builders.add_session(source)
    builders.add_observation(source, "Merged", merged_into_project="shop-main")
    entry = read_one(path)
    assert (entry.project, entry.metadata["claudeMem"]["project"]) == ("shop-main", "shop")
    assert entry.metadata["claudeMem"]["session"] == "memory-one"


def test_empty_project_is_taken_from_the_session(path, source):
    """There is a warning."""
    builders.add_session(source)
    builders.add_observation(source, "Nowhere", project=" ")
    entry = read_one(path)
    assert entry.project == "shop"
    assert entry.warnings == ("project: missing, assigned to shop",)


@pytest.mark.parametrize("written", [MARCH, MARCH // 1000, str(MARCH), "2026-03-02T08:15:00Z"])
def test_all_time_formats_are_understood(path, source, written):
    """Seconds instead of milliseconds, and text instead of numbers, mean the same time."""
    builders.add_session(source)
    builders.add_observation(source, "Retry storm", created_at_epoch=written)
    assert read_one(path).created_at_epoch_ms == MARCH


def test_missing_epoch_is_taken_from_the_iso_column(path, source):
    """The ISO column is the fallback."""
    builders.add_session(source)
    builders.add_observation(source, "Retry storm", created_at_epoch=None, created_at="2026-03-02T08:15:00Z")
    assert read_one(path).created_at_epoch_ms == MARCH


def test_missing_time_is_taken_from_the_session(path, source):
    """There is a warning."""
    builders.add_session(source, started_at_epoch=MARCH - 1)
    builders.add_observation(source, "Retry storm", created_at_epoch=None)
    entry = read_one(path)
    assert entry.created_at_epoch_ms == MARCH - 1
    assert entry.warnings


def test_invalid_text_is_cleaned(path, source):
    """NUL characters are removed, and invalid UTF-8 becomes the replacement character."""
    builders.add_observation(source, "nul\x00byte")
    source.execute("UPDATE observations SET narrative = CAST(x'66ff6f' AS TEXT)")
    entry = read_one(path)
    assert (entry.title, entry.narrative) == ("nulbyte", "f�o")
