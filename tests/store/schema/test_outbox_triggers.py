"""The outbox of the vector mirror is written by triggers: every writer is caught, one entry stands per memory."""

import pytest

from tests.store.raw_writer import RawWriter

pytestmark = pytest.mark.parametrize(
    "raw", ["owner", pytest.param("server", marks=pytest.mark.postgresql)], indirect=True
)

ENTRIES = "SELECT memory_id, project_id, operation, version FROM vector_outbox"


@pytest.fixture
def memory(raw: RawWriter) -> str:
    """The id of a memory that is mirrored already."""
    written = raw.insert("memory_items", team_id="a", project_id="a1", text="first")
    raw.run("DELETE FROM vector_outbox")
    return written


def test_a_new_memory_is_to_be_mirrored(raw: RawWriter):
    """An insert leaves an entry."""
    written = raw.insert("memory_items", team_id="a", project_id="a1")

    assert raw.run(ENTRIES) == [(written, "a1", "upsert", 1)]


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
def test_a_change_of_what_is_embedded_is_to_be_mirrored(raw: RawWriter, memory: str, change: str):
    """An update leaves an entry of a higher version, and the memory has that version."""
    raw.run(f"UPDATE memory_items SET {change}")

    assert raw.run(ENTRIES) == [(memory, "a1", "upsert", 2)]
    assert raw.run("SELECT version FROM memory_items") == [(2,)]


@pytest.mark.parametrize("change", ["pinned = true", "metadata = '{\"a\":1}'", "text = text", "updated_at_epoch = 9"])
def test_a_change_of_anything_else_is_not(raw: RawWriter, memory: str, change: str):
    """Nothing is embedded again that would be embedded the same."""
    raw.run(f"UPDATE memory_items SET {change}")

    assert raw.run(ENTRIES) == []


def test_a_deletion_is_to_be_mirrored(raw: RawWriter, memory: str):
    """A delete leaves an entry that outlives the row."""
    raw.run("DELETE FROM memory_items")

    assert raw.run(ENTRIES) == [(memory, "a1", "delete", 2)]


def test_the_deletion_of_a_project_is_to_be_mirrored(raw: RawWriter, memory: str):
    """Memories that go with their project leave their entries too."""
    raw.enforce_foreign_keys()
    raw.run("DELETE FROM projects WHERE id = 'a1'")

    assert raw.run(ENTRIES) == [(memory, "a1", "delete", 2)]


def test_one_entry_stands_per_memory(raw: RawWriter, memory: str):
    """Later changes raise the version of the entry; the last operation counts."""
    raw.run("UPDATE memory_items SET text = 'second'")
    raw.run("UPDATE memory_items SET text = 'third'")
    raw.run("DELETE FROM memory_items")

    assert raw.run(ENTRIES) == [(memory, "a1", "delete", 4)]


def test_a_claim_stands_when_the_memory_changes(raw: RawWriter, memory: str):
    """Whoever works on an entry keeps it, and sees by the version that it is not done."""
    raw.run("UPDATE memory_items SET text = 'second'")
    raw.run("UPDATE vector_outbox SET claimed_by = 'me', claimed_until_epoch = 99")

    raw.run("UPDATE memory_items SET text = 'third'")

    claim = raw.run("SELECT claimed_by, claimed_until_epoch, version FROM vector_outbox")
    assert claim == [("me", 99, 3)]


def test_a_change_takes_up_what_was_set_aside(raw: RawWriter, memory: str):
    """An entry that failed for good is tried again when there is something new to mirror."""
    raw.run("UPDATE memory_items SET text = 'second'")
    raw.run("UPDATE vector_outbox SET failed = true, attempts = 9, last_error = 'x', next_attempt_at_epoch = 99")

    raw.run("UPDATE memory_items SET text = 'third'")

    state = raw.run("SELECT failed, attempts, last_error, next_attempt_at_epoch FROM vector_outbox")
    assert state == [(False, 0, None, 0)]


def test_a_memory_that_is_written_again_under_its_old_id_is_mirrored_as_new(raw: RawWriter, memory: str):
    """An insert behind an unmirrored deletion ends as an upsert of a higher version."""
    raw.run("DELETE FROM memory_items")
    raw.insert("memory_items", team_id="a", project_id="a1", id=memory)

    assert raw.run(ENTRIES) == [(memory, "a1", "upsert", 3)]
