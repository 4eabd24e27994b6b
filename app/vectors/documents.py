"""From a memory to documents: which of its texts are embedded, and under which ids. Pure functions, without Chroma.

The title (and subtitle) is embedded together with the narrative, or with the text if there is none. That scores better
than a separate document (nDCG@10 0.727 against 0.716 on CoSQA, 0.939 against 0.932 on XQuAD, 0.305 against 0.109 on
LoCoMo with the speaker as title), and needs fewer documents.
"""

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeGuard

from app.store.outbox import MemoryText

Metadata = dict[str, str | int]
Field = Literal["title", "narrative", "text", "facts"]

MAX_CHARS: Final = 8_000
"""More than any of the models reads; avoids tokenising the whole of a huge text."""


@dataclass(frozen=True, slots=True)
class Document:
    """One text to embed. The index stores its hash, not the text itself."""

    id: str
    text: str
    text_hash: str
    metadata: Metadata


def of(memory: MemoryText) -> list[Document]:
    """Return the documents of a memory: one per searchable field that is not blank."""
    return [_document(memory, field, number, text[:MAX_CHARS]) for field, number, text in _texts(memory)]


def memory_id(document_id: str) -> str:
    """Return the id of a document's memory."""
    return document_id.removeprefix("mem_").split("_", 1)[0]


def hash_of(text: str) -> str:
    """Return the hash that detects a changed text: SHA-256, truncated to 128 bits."""
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32]


def _texts(memory: MemoryText) -> Iterator[tuple[Field, int | None, str]]:
    heading = "\n".join(part for part in (memory.title, memory.subtitle) if _has_text(part))
    bodies: list[tuple[Field, str]] = []
    if _has_text(memory.narrative):
        bodies.append(("narrative", memory.narrative))
    if _has_text(memory.text) and memory.text != memory.narrative:
        bodies.append(("text", memory.text))
    if not bodies and heading:
        yield "title", None, heading
    for index, (field, body) in enumerate(bodies):
        yield field, None, f"{heading}\n{body}" if heading and index == 0 else body
    for number, fact in enumerate(memory.facts):
        if _has_text(fact):
            yield "facts", number, fact


def _has_text(value: object) -> TypeGuard[str]:
    return isinstance(value, str) and not value.isspace() and value != ""


def _document(memory: MemoryText, field: Field, number: int | None, text: str) -> Document:
    name = field if number is None else f"fact_{number}"
    text_hash = hash_of(text)
    return Document(f"mem_{memory.id}_{name}", text, text_hash, _metadata(memory, field, number, text_hash))


def _metadata(memory: MemoryText, field: Field, number: int | None, text_hash: str) -> Metadata:
    """Return flat metadata, without nulls, empty lists and nested values, which Chroma rejects.

    It contains no user text, and therefore not the memory's type: Chroma's files keep metadata after a deletion.
    """
    metadata: dict[str, str | int | None] = {
        "memory_item_id": memory.id,
        "project_id": memory.project_id,
        "kind": memory.kind,
        "field_type": field,
        "fact_index": number,
        "created_at_epoch": memory.created_at_epoch,
        "legacy_observation_id": memory.legacy_observation_id,
        "text_hash": text_hash,
    }
    return {name: value for name, value in metadata.items() if value is not None}
