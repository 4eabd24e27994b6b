"""An export as Markdown: what a reader needs of each memory."""

from typing import Any

from app.services.transfer import markdown
from app.services.transfer.transfer_records import Header, MemoryRecord, ProjectRecord, Record

DAY = 1_779_235_200_000  # 2026-05-20
HOUR = 3_600_000


def project(name: str) -> ProjectRecord:
    return ProjectRecord(
        id="p", name=name, slug="p", root_path=None, metadata={}, retention=[], created_at_epoch=0, updated_at_epoch=0
    )


def memory(at: int, **fields: Any) -> MemoryRecord:
    absent = ("server_session_id", "created_by", "legacy_observation_id", "title", "subtitle", "text", "narrative")
    defaults: dict[str, Any] = {
        **dict.fromkeys(absent),
        **{name: [] for name in ("facts", "concepts", "files_read", "files_modified", "sources")},
        "id": "m",
        "dedup_scope": "",
        "pinned": False,
        "kind": "manual",
        "type": "decision",
        "metadata": {},
        "platform_source": "claude",
        "created_at_epoch": at,
        "updated_at_epoch": at,
    }
    return MemoryRecord(**{**defaults, **fields})


def text(*records: Record) -> str:
    return "".join(markdown.lines(records))


def test_memory_has_its_time_type_texts_and_lists():
    """In the order in which a person reads them."""
    entry = memory(
        DAY + HOUR,
        title="Rotate keys",
        narrative="Weekly.",
        facts=["on\nMonday", "at night"],
        concepts=["security"],
        files_modified=["keys.py"],
    )

    assert text(Header(), project("A  project"), entry) == (
        "# A project\n\n## 2026-05-20\n\n### 01:00 Rotate keys (decision)\n\nWeekly.\n\n"
        "- on Monday\n- at night\n\n*concepts: security*\n\n*changed: keys.py*\n\n"
    )


def test_day_is_a_heading_once_and_again_in_the_next_project():
    """Days are UTC."""
    headings = [
        line
        for line in text(
            project("a"), memory(DAY - 1), memory(DAY), memory(DAY + HOUR), project("b"), memory(DAY)
        ).splitlines()
        if line.startswith("## ")
    ]

    assert headings == ["## 2026-05-19", "## 2026-05-20", "## 2026-05-20"]


def test_heading_is_not_repeated_below_itself():
    """A memory without a title is headed by its subtitle, or else by its type."""
    assert text(memory(DAY, subtitle="Only this", text="Only this")).count("Only this") == 1
    assert "### 00:00 decision (decision)\n\nBody" in text(memory(DAY, text="Body"))
