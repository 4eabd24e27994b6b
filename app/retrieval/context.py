"""The `[memory]` block: what an agent reads before it answers. The same memories and limits give the same bytes."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final, Literal

from app.retrieval import secrets, snippets, text

HEADER: Final = "[memory]"
NEAR_DUPLICATE: Final = 0.8
"""Two memories that share this much of their words are the same to a reader."""

Language = Literal["en", "zh"]

_RULES: Final[dict[Language, tuple[str, str]]] = {
    "en": ("Answer from these facts only. When they do not hold the answer, say that you do not know.", "Question: "),
    "zh": ("只根据下列事实回答；其中没有答案时，请直接说不知道。", "问题："),
}
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LAST_MS: Final = 253_402_300_799_999
_SENTENCE_END: Final = re.compile(r"(?<=[.!?])\s+|(?<=[。！？；])|\n+")
_MAX_CHARACTERS_READ: Final = 20_000


@dataclass(frozen=True, slots=True)
class ContextEntry:
    """A memory to include: its title, its passages, and when it was made (epoch ms)."""

    title: str | None
    passages: tuple[str, ...]
    created_at_epoch: int


@dataclass(frozen=True, slots=True)
class ContextBlock:
    """The text, and the indices of the entries in it; `text` is empty when there are none."""

    text: str
    used: tuple[int, ...]


def build_block(
    entries: Sequence[ContextEntry],
    terms: Sequence[text.Term],
    *,
    limit: int,
    max_characters: int,
    max_characters_per_memory: int,
) -> ContextBlock:
    """Return one dated line for each of at most `limit` entries, in their order, within the limits (in code points).

    An entry that repeats an earlier one, or for which there is no room left, is omitted.
    """
    lines: list[str] = [HEADER]
    used: list[int] = []
    included: list[frozenset[str]] = []
    room = max_characters - len(HEADER)
    for index, entry in enumerate(entries):
        words = frozenset(text.marked(_full_text(entry)).split("<"))
        if len(used) == limit:
            break
        if any(_are_near_duplicates(words, earlier) for earlier in included):
            continue
        line = _line(entry, terms, min(max_characters_per_memory, room - len("\n- [2026-05-20] ")))
        if line:
            lines.append(line)
            used.append(index)
            included.append(words)
            room -= len(line) + 1
    return ContextBlock("\n".join(lines) if used else "", tuple(used))


def sandwich(block_text: str, query: str, language: Language) -> str:
    """Return the block between the rule and the question."""
    rule, question = _RULES[language]
    return f"{rule}\n\n{block_text}\n\n{question}{query.strip()}"


def _line(entry: ContextEntry, terms: Sequence[text.Term], size: int) -> str:
    summary = snippets.truncate(_summary(entry, terms), size)
    return f"- [{_date(entry.created_at_epoch)}] {summary}" if summary.strip("…") else ""


def _summary(entry: ContextEntry, terms: Sequence[text.Term]) -> str:
    """Return the title, which says what was decided or changed, and the sentence that matches best."""
    title = _on_one_line(secrets.mask(entry.title or ""))
    sentences = [line for passage in entry.passages for line in _sentences(passage) if line != title]
    best = max(sentences, key=lambda sentence: _matched_weight(sentence, terms), default="")
    return f"{title}: {best}" if title and best else title or best


def _sentences(passage: str) -> list[str]:
    masked = secrets.mask(passage[:_MAX_CHARACTERS_READ])
    return [line for sentence in _SENTENCE_END.split(masked) if (line := _on_one_line(sentence))]


def _matched_weight(sentence: str, terms: Sequence[text.Term]) -> float:
    marked = text.marked(sentence)
    return sum(term.weight for term in terms if any(pattern in marked for pattern in term.patterns))


def _on_one_line(passage: str) -> str:
    return " ".join(passage.split())


def _full_text(entry: ContextEntry) -> str:
    return " ".join([entry.title or "", *entry.passages])[:_MAX_CHARACTERS_READ]


def _are_near_duplicates(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= NEAR_DUPLICATE * max(len(one | other), 1)


def _date(epoch_ms: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=min(max(epoch_ms, 0), _LAST_MS))
    return moment.date().isoformat()
