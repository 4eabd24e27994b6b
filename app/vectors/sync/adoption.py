"""Reads the vectors of a claude-mem Chroma folder, from a copy so that the source is not changed. Knows no memories."""

import re
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from app.vectors import documents, embedding
from app.vectors.chroma.collections import Collections, StoredDocument
from app.vectors.chroma.connection import Connection
from app.vectors.chroma.server import ChildServer
from app.vectors.embedding import Embedder, Vectors

_DATABASE: Final = "chroma.sqlite3"
_PREFIX: Final = "cm__"
_DOCUMENT_ID: Final = re.compile(r"(obs|summary|prompt)_(\d+)(?:_.+)?")
_TABLES: Final = {"obs": "observations", "summary": "session_summaries", "prompt": "user_prompts"}
_SAME_MODEL_COSINE: Final = 0.98
_SAMPLE: Final = 8


class NotAChromaFolder(Exception):
    """The folder holds no Chroma database."""


@dataclass(frozen=True, slots=True)
class LegacyVector:
    """A vector, and the row of the legacy database (table and id) that its text comes from."""

    legacy_table: str
    legacy_id: int
    text: str
    text_hash: str
    vector: Vectors


@contextmanager
def open_folder(folder: Path) -> Iterator[Iterator[list[LegacyVector]]]:
    """Yield the vectors of all collections page by page. Raises NotAChromaFolder."""
    if not (folder / _DATABASE).is_file():
        raise NotAChromaFolder(f"{folder} has no {_DATABASE}: it is not a Chroma folder.")
    with tempfile.TemporaryDirectory(prefix="cmem-adopt-") as scratch:
        copy = Path(scratch) / "chroma"
        _copy(folder, copy)
        connection = Connection(ChildServer(copy))
        try:
            yield _pages(Collections(connection))
        finally:
            connection.close()


def is_same_model(embedder: Embedder, vectors: Sequence[LegacyVector]) -> bool:
    """Say whether the vectors come from the embedder's model, by embedding a sample of the texts and comparing.

    The collection's own metadata is not trusted: claude-mem leaves the model to a default that has changed.
    """
    sample = vectors[:_SAMPLE]
    if not sample or len(sample[0].vector) != embedder.dimensions:
        return False
    theirs = embedding.unit(np.stack([one.vector for one in sample]))
    ours = embedder.embed([one.text for one in sample])
    return bool((theirs * ours).sum(axis=1).min() >= _SAME_MODEL_COSINE)


def _copy(folder: Path, copy: Path) -> None:
    """Copy the folder; its database through SQLite, which includes what is still in the write-ahead log."""
    shutil.copytree(folder, copy, ignore=shutil.ignore_patterns(_DATABASE + "*"))
    with (
        closing(sqlite3.connect(f"{(folder / _DATABASE).absolute().as_uri()}?mode=ro", uri=True)) as source,
        closing(sqlite3.connect(copy / _DATABASE)) as target,
    ):
        source.backup(target)


def _pages(collections: Collections) -> Iterator[list[LegacyVector]]:
    for name in sorted(collections.names()):
        if name.startswith(_PREFIX):
            for page in collections.contents(name):
                yield [vector for content in page if (vector := _legacy_vector(content))]


def _legacy_vector(content: StoredDocument) -> LegacyVector | None:
    """Return what claude-mem stored, or None for documents of other programs and for those without their text."""
    match = _DOCUMENT_ID.fullmatch(content.document_id)
    if match is None or not content.text:
        return None
    text = content.text[: documents.MAX_CHARS]
    return LegacyVector(_TABLES[match[1]], int(match[2]), text, documents.hash_of(text), content.vector)
