"""Public question sets in a folder, and the metrics of an answer to them. Independent of any server."""

import json
import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

DEPTH = 10
_EARLIEST_MS = 1_700_000_000_000
_LEFT_OUT = "adversarial"
"""LoCoMo's fifth category: questions without an answer."""


@dataclass(frozen=True)
class Document:
    """A text to store, with its time (epoch ms) and its session in the corpus."""

    id: str
    text: str
    session: str | None
    created_at_epoch: int


@dataclass(frozen=True)
class Question:
    """A query and the documents that answer it."""

    text: str
    relevant: frozenset[str]


@dataclass(frozen=True)
class Corpus:
    """Documents that are searched together. `set_name` is the set that they belong to."""

    set_name: str
    documents: Sequence[Document]
    questions: Sequence[Question]


def read(folder: Path) -> list[Corpus]:
    """Return every corpus of every set in a folder, by name."""
    return [
        _corpus(content["name"], corpus, is_only=len(content["corpora"]) == 1)
        for path in sorted(folder.glob("*.json"))
        for content in [json.loads(path.read_text(encoding="utf-8"))]
        for corpus in content["corpora"]
    ]


def _corpus(name: str, corpus: dict[str, Any], *, is_only: bool) -> Corpus:
    # The conversations of LoCoMo are one set; the languages of XQuAD are several.
    is_conversation = any("session" in document for document in corpus["documents"])
    return Corpus(
        name if is_only or is_conversation else f"{name} {corpus['id']}",
        [_document(document, index) for index, document in enumerate(corpus["documents"])],
        [
            Question(question["text"], frozenset(question["relevant"]))
            for question in corpus["queries"]
            if question["relevant"] and question.get("category") != _LEFT_OUT
        ],
    )


def _document(document: dict[str, Any], index: int) -> Document:
    text = f"{document['speaker']}: {document['text']}" if "speaker" in document else document["text"]
    session = document.get("session")
    began_ms = _epoch_ms(document["at"]) if "at" in document else _EARLIEST_MS
    return Document(document["id"], text, None if session is None else str(session), began_ms + index)


def _epoch_ms(at: str) -> int:
    """Parse a time as LoCoMo writes it: `1:56 pm on 8 May, 2023`."""
    return round(datetime.strptime(at, "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC).timestamp() * 1_000)


def ndcg(results: Sequence[str], relevant: Collection[str]) -> float:
    """Return nDCG@10 with binary relevance (Järvelin and Kekäläinen, 2002)."""
    gain = sum(1 / math.log2(rank + 2) for rank, each in enumerate(results[:DEPTH]) if each in relevant)
    return gain / sum(1 / math.log2(rank + 2) for rank in range(min(DEPTH, len(relevant))))


def recall(results: Sequence[str], relevant: Collection[str]) -> float:
    """Return recall@10."""
    return len(set(results[:DEPTH]) & set(relevant)) / len(relevant)
