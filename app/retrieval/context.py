"""The `[memory]` block: what an agent reads before it answers. Same memories and limits, same bytes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from app.retrieval import secrets, snippets, text

HEADER: Final = "[memory]"
NEAR_DUPLICATE: Final = 0.8
"""Two memories that share this much of their words are one and the same to a reader."""

Language = Literal["en", "zh"]

_RULES: Final[dict[Language, tuple[str, str]]] = {
    "en": ("Answer from these facts only. When they do not hold the answer, say that you do not know.", "Question: "),
    "zh": ("只根据下列事实回答；其中没有答案时，请直接说不知道。", "问题："),
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = 253_402_300_799_999
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])|\n+")
_READ_CHARACTERS: Final = 20_000


@dataclass(frozen=True, slots=True)
class Entry:
    """A memory as it may be told: its title, its passages, and when it was made (epoch ms)."""

    title: str | None
    passages: tuple[str, ...]
    created_at_epoch: int


@dataclass(frozen=True, slots=True)
class Block:
    """The text, and which entries are in it; `text` is empty when none is."""

    text: str
    used: tuple[int, ...]


def block(
    entries: Sequence[Entry],
    terms: Sequence[text.Term],
    *,
    limit: int,
    max_characters: int,
    max_characters_per_memory: int,
) -> Block:
    """Return one dated line for each of at most `limit` entries, in their order, within the limits (in code points).

    An entry that says what an earlier one said, or has no room left, is left out.
    """
    lines: list[str] = [HEADER]
    used: list[int] = []
    told: list[frozenset[str]] = []
    room = max_characters - len(HEADER)
    for place, entry in enumerate(entries):
        words = frozenset(text.marked(_whole(entry)).split("<"))
        if len(used) == limit:
            break
        if any(_alike(words, before) for before in told):
            continue
        line = _line(entry, terms, min(max_characters_per_memory, room - len("\n- [2026-05-20] ")))
        if line:
            lines.append(line)
            used.append(place)
            told.append(words)
            room -= len(line) + 1
    return Block("\n".join(lines) if used else "", tuple(used))


def sandwich(block_text: str, query: str, language: Language) -> str:
    """Return the block between the rule and the question."""
    rule, question = _RULES[language]
    return f"{rule}\n\n{block_text}\n\n{question}{query.strip()}"


def _line(entry: Entry, terms: Sequence[text.Term], size: int) -> str:
    said = snippets.cut(_said(entry, terms), size)
    return f"- [{_date(entry.created_at_epoch)}] {said}" if said.strip("…") else ""


def _said(entry: Entry, terms: Sequence[text.Term]) -> str:
    """The title, which says what was decided or changed, then the sentence that answers most."""
    title = _one_line(secrets.masked(entry.title or ""))
    sentences = [line for passage in entry.passages for line in _sentences(passage) if line != title]
    telling = max(sentences, key=lambda sentence: _answered(sentence, terms), default="")
    return f"{title}: {telling}" if title and telling else title or telling


def _sentences(passage: str) -> list[str]:
    shown = secrets.masked(passage[:_READ_CHARACTERS])
    return [line for sentence in _SENTENCE_END.split(shown) if (line := _one_line(sentence))]


def _answered(sentence: str, terms: Sequence[text.Term]) -> float:
    marked = text.marked(sentence)
    return sum(term.weight for term in terms if any(pattern in marked for pattern in term.patterns))


def _one_line(passage: str) -> str:
    return " ".join(passage.split())


def _whole(entry: Entry) -> str:
    return " ".join([entry.title or "", *entry.passages])[:_READ_CHARACTERS]


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= NEAR_DUPLICATE * max(len(one | other), 1)


def _date(epoch_ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=min(max(epoch_ms, 0), _LAST_MS))
    return moment.date().isoformat()
