"""Triggers write the vector mirror's outbox, whatever client writes memories: one entry per memory."""

import pytest

from tests.store.raw_writer import RawWriter

pytestmark = pytest.mark.parametrize(
    "raw", ["owner", pytest.param("server", marks=pytest.mark.postgresql)], indirect=True
)

ENTRIES = "SELECT memory_id, project_id, operation, version FROM vector_outbox"


@pytest.fixture
def memory(raw: RawWriter) -> str:
    """The id of a memory that has been mirrored already."""
    memory_id = raw.insert("memory_items", team_id="a", project_id="a1", text="first")
    raw.run("DELETE FROM vector_outbox")
    return memory_id


def test_new_memory_is_enqueued(raw: RawWriter):
    """An insert adds an entry."""
    memory_id = raw.insert("memory_items", team_id="a", project_id="a1")

    assert raw.run(ENTRIES) == [(memory_id, "a1", "upsert", 1)]


@pytest.mark.parametrize(
    "change",
    [
        "title = 'x'",
        "subtitle = 'x'",
        "text = 'x'",
        "narrative = 'x'",
        "facts = '[\"x\"]'",
        "kind = 'summary'",
        "type = 'x'",
        "created_at_epoch = 9",
    ],
)
def test_change_of_embedded_field_is_enqueued(raw: RawWriter, memory: str, change: str):
    """An update adds an entry with a higher version, which the memory has, too."""
    raw.run(f"UPDATE memory_items SET {change}")

    assert raw.run(ENTRIES) == [(memory, "a1", "upsert", 2)]
    assert raw.run("SELECT version FROM memory_items") == [(2,)]


@pytest.mark.parametrize("change", ["pinned = true", "metadata = '{\"a\":1}'", "text = text", "updated_at_epoch = 9"])
def test_change_of_other_field_is_not_enqueued(raw: RawWriter, memory: str, change: str):
    """A memory whose embedding would not change is not embedded again."""
    raw.run(f"UPDATE memory_items SET {change}")

    assert raw.run(ENTRIES) == []


def test_deletion_is_enqueued(raw: RawWriter, memory: str):
    """A delete adds an entry that outlives the row."""
    raw.run("DELETE FROM memory_items")

    assert raw.run(ENTRIES) == [(memory, "a1", "delete", 2)]


def test_deletion_of_project_enqueues_its_memories(raw: RawWriter, memory: str):
    """Memories deleted by the cascade are enqueued, too."""
    raw.enforce_foreign_keys()
    raw.run("DELETE FROM projects WHERE id = 'a1'")

    assert raw.run(ENTRIES) == [(memory, "a1", "delete", 2)]


def test_memory_has_only_one_entry(raw: RawWriter, memory: str):
    """Later changes increase the version of the entry; the last operation wins."""
    raw.run("UPDATE memory_items SET text = 'second'")
    raw.run("UPDATE memory_items SET text = 'third'")
    raw.run("DELETE FROM memory_items")

    assert raw.run(ENTRIES) == [(memory, "a1", "delete", 4)]


def test_claim_is_kept_when_memory_changes(raw: RawWriter, memory: str):
    """The claiming process keeps the entry, and sees by its version that it must be mirrored again."""
    raw.run("UPDATE memory_items SET text = 'second'")
    raw.run("UPDATE vector_outbox SET claimed_by = 'me', claimed_until_epoch = 99")

    raw.run("UPDATE memory_items SET text = 'third'")

    claim = raw.run("SELECT claimed_by, claimed_until_epoch, version FROM vector_outbox")
    assert claim == [("me", 99, 3)]


def test_change_makes_failed_entry_pending_again(raw: RawWriter, memory: str):
    """An entry that failed for good is retried when there is something new to mirror."""
    raw.run("UPDATE memory_items SET text = 'second'")
    raw.run("UPDATE vector_outbox SET failed = true, attempts = 9, last_error = 'x', next_attempt_at_epoch = 99")

    raw.run("UPDATE memory_items SET text = 'third'")

    state = raw.run("SELECT failed, attempts, last_error, next_attempt_at_epoch FROM vector_outbox")
    assert state == [(False, 0, None, 0)]


def test_memory_recreated_with_its_old_id_is_mirrored_as_new(raw: RawWriter, memory: str):
    """An insert after a pending deletion becomes an upsert with a higher version."""
    raw.run("DELETE FROM memory_items")
    raw.insert("memory_items", team_id="a", project_id="a1", id=memory)

    assert raw.run(ENTRIES) == [(memory, "a1", "upsert", 3)]
