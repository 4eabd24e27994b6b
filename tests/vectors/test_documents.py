"""The documents of a memory."""

import msgspec
import pytest

from app.store.outbox import MemoryText
from app.vectors import documents

BLANK = MemoryText(
    id="0192f0c0-0000-7000-8000-000000000001",
    team_id="0192f0c0-0000-7000-8000-00000000000b",
    project_id="0192f0c0-0000-7000-8000-00000000000a",
    version=1,
    kind="observation",
    type="bugfix",
    title=None,
    subtitle=None,
    narrative=None,
    text=None,
    facts=[],
    created_at_epoch=1_700_000_000_000,
    legacy_observation_id=None,
)


def memory(**fields) -> MemoryText:
    return msgspec.structs.replace(BLANK, **fields)


FULL = memory(
    title="Retry storm", narrative="Workers retried at once.", text="raw log", facts=["has jitter", "30 s ceiling"]
)


def texts_of(memory: MemoryText) -> dict[str, str]:
    prefix = f"mem_{memory.id}_"
    return {document.id.removeprefix(prefix): document.text for document in documents.of(memory)}


def test_each_searchable_field_is_a_document_and_the_title_heads_the_narrative():
    """The ids follow claude-mem's scheme, with our memory id."""
    assert texts_of(FULL) == {
        "narrative": "Retry storm\nWorkers retried at once.",
        "text": "raw log",
        "fact_0": "has jitter",
        "fact_1": "30 s ceiling",
    }


def test_title_heads_the_text_if_there_is_no_narrative():
    """The first body is embedded together with the title."""
    assert texts_of(memory(title="Note", text="body")) == {"text": "Note\nbody"}


def test_memory_with_only_a_title_is_searchable():
    """A title without a body is a document of its own."""
    assert texts_of(memory(title="Note", subtitle="more")) == {"title": "Note\nmore"}


def test_same_text_is_not_embedded_twice():
    """A text equal to the narrative is skipped."""
    assert list(texts_of(memory(narrative="same", text="same"))) == ["narrative"]


@pytest.mark.parametrize("blank", [None, "", " \n\t"])
def test_blank_fields_have_no_document(blank):
    """A blank memory has no documents."""
    assert documents.of(memory(title=blank, narrative=blank, text=blank, facts=[blank or ""])) == []


def test_blank_fact_does_not_renumber_the_others():
    """The number is the fact's index, so an id always refers to the same fact."""
    assert list(texts_of(memory(facts=["a", " ", None, "b"]))) == ["fact_0", "fact_3"]


def test_metadata_is_flat_and_without_nulls():
    """Chroma rejects a whole batch for one null, list or nested value."""
    metadata = documents.of(msgspec.structs.replace(FULL, legacy_observation_id=0))[2].metadata
    assert metadata == {
        "memory_item_id": FULL.id,
        "project_id": FULL.project_id,
        "kind": "observation",
        "field_type": "facts",
        "fact_index": 0,
        "created_at_epoch": FULL.created_at_epoch,
        "legacy_observation_id": 0,
        "text_hash": documents.hash_of("has jitter"),
    }


def test_hash_changes_only_with_the_text():
    """A new title needs a new embedding; a new type or time does not."""
    first = documents.of(FULL)[0].text_hash
    assert documents.of(msgspec.structs.replace(FULL, type="feature", created_at_epoch=1))[0].text_hash == first
    assert documents.of(msgspec.structs.replace(FULL, title="Other"))[0].text_hash != first


def test_huge_text_is_truncated_before_tokenising():
    """No model reads beyond the limit."""
    assert len(documents.of(memory(text="word " * 100_000))[0].text) == documents.MAX_CHARS


def test_document_id_contains_its_memory_id():
    """Candidates of a query are grouped by memory."""
    assert {documents.memory_id(document.id) for document in documents.of(FULL)} == {FULL.id}
