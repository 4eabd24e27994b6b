"""Snippets: the passage of a memory that shows why it matched, in its original text with the matched words marked."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from app.retrieval import text

MAX_CHARACTERS: Final = 240
MAX_CHARACTERS_READ: Final = 10_000
_JOINERS: Final = frozenset("\u200d\ufe0e\ufe0f")

Span = tuple[int, int]


def snippet(
    texts: Iterable[str | None], terms: Sequence[text.Term], *, max_characters: int = MAX_CHARACTERS
) -> str | None:
    """Return the passage of the texts with most of the terms, with `<mark>` around them.

    `max_characters` counts the original text, without marks and ellipses. Without a match, returns the beginning of
    the first text; without a text, None.
    """
    candidates = [candidate[:MAX_CHARACTERS_READ] for candidate in texts if candidate and candidate.strip()]
    if not candidates:
        return None
    best = candidates[0] if len(candidates) == 1 else max(candidates, key=lambda each: _matched_weight(each, terms))
    matches = text.matches(best, terms)
    start, end = _window(best, matches, max_characters)
    return _mark(best, [match.span for match in matches], start, end)


def truncate(original: str, max_characters: int) -> str:
    """Truncate a text to at most `max_characters` code points, `…` included, at the end of a word if possible."""
    if len(original) <= max_characters:
        return original
    if max_characters < 1:
        return ""
    end = _boundary(original, max_characters - 1)
    return original[: _word_end(original, 0, end)].rstrip() + "…"


def _matched_weight(candidate: str, terms: Sequence[text.Term]) -> float:
    marked = text.marked(candidate)
    return sum(term.weight for term in terms if any(pattern in marked for pattern in term.patterns))


def _window(original: str, matches: Sequence[text.Match], size: int) -> Span:
    """Return the window of `size` characters with most distinct terms, the first of equal ones."""
    if len(original) <= size:
        return 0, len(original)
    starts = [match.span[0] for match in matches] or [0]
    anchor = max(
        starts, key=lambda start: len({match.term for match in matches if _inside(match.span, start, start + size)})
    )
    last = max((match.span[1] for match in matches if _inside(match.span, anchor, anchor + size)), default=anchor)
    start = max(0, min(anchor - (size - (last - anchor)) // 2, len(original) - size))
    start = _word_start(original, _boundary(original, start), anchor)
    end = min(start + size, len(original))
    return start, _word_end(original, last, _boundary(original, end))


def _inside(span: Span, start: int, end: int) -> bool:
    return start <= span[0] and span[1] <= end


def _mark(original: str, spans: Sequence[Span], start: int, end: int) -> str:
    pieces, position = ["…" if start else ""], start
    for span in _merge(spans):
        if _inside(span, start, end):
            pieces += [original[position : span[0]], "<mark>", original[span[0] : span[1]], "</mark>"]
            position = span[1]
    pieces += [original[position:end], "…" if end < len(original) else ""]
    return "".join(pieces).strip()


def _merge(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _boundary(original: str, position: int) -> int:
    """Move back to the start of a user-perceived character: never inside an accented letter, an emoji or a flag."""
    while 0 < position < len(original) and _continues(original[position - 1], original[position]):
        position -= 1
    return position


def _continues(before: str, mark: str) -> bool:
    return (
        before == "\u200d"
        or mark in _JOINERS
        or "\U0001f3fb" <= mark <= "\U0001f3ff"
        or unicodedata.category(mark) in ("Mn", "Mc", "Me")
    )


def _word_end(original: str, least: int, end: int) -> int:
    """Move back to the end of a word, by at most 30 characters and not before `least`; stay in unspaced scripts."""
    if end >= len(original) or not _splits_word(original, end):
        return end
    for position in range(end - 1, max(least, end - 30), -1):
        if not _splits_word(original, position):
            return position
    return end


def _word_start(original: str, start: int, anchor: int) -> int:
    if start == 0 or not _splits_word(original, start):
        return start
    return next(
        (position for position in range(start + 1, min(anchor, start + 30)) if not _splits_word(original, position)),
        start,
    )


def _splits_word(original: str, position: int) -> bool:
    """Return whether a cut here would split a word that spaces delimit."""
    return (
        original[position - 1].isalnum()
        and original[position].isalnum()
        and not text.is_unspaced(original[position - 1 : position + 1])
    )
