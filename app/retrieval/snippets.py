"""The piece of a memory that shows why it was found: original text, matched words marked, cut between characters."""

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Final

from app.retrieval import text

MAX_CHARACTERS: Final = 240
SEARCHED_CHARACTERS: Final = 10_000
_JOINERS: Final = frozenset("\u200d\ufe0e\ufe0f")

Span = tuple[int, int]


def snippet(
    texts: Iterable[str | None], terms: Sequence[text.Term], *, max_characters: int = MAX_CHARACTERS
) -> str | None:
    """Return the part of the texts that holds most of the terms, with `<mark>` around them.

    `max_characters` counts the original text, without marks and ellipses. Without a match it is the beginning of the
    first text, and None when there is no text.
    """
    candidates = [candidate[:SEARCHED_CHARACTERS] for candidate in texts if candidate and candidate.strip()]
    if not candidates:
        return None
    best = candidates[0] if len(candidates) == 1 else max(candidates, key=lambda each: _worth(each, terms))
    matches = text.matches(best, terms)
    start, end = _window(best, matches, max_characters)
    return _marked(best, [match.span for match in matches], start, end)


def cut(whole: str, max_characters: int) -> str:
    """Return at most that many code points of a text, ended by `…` when shortened; at a word end, in no character."""
    if len(whole) <= max_characters:
        return whole
    if max_characters < 1:
        return ""
    end = _boundary(whole, max_characters - 1)
    return whole[: _word_end(whole, 0, end)].rstrip() + "…"


def _worth(candidate: str, terms: Sequence[text.Term]) -> float:
    marked = text.marked(candidate)
    return sum(term.weight for term in terms if any(pattern in marked for pattern in term.patterns))


def _window(whole: str, matches: Sequence[text.Match], size: int) -> Span:
    """The stretch of `size` characters that holds most different terms, the first of equal ones."""
    if len(whole) <= size:
        return 0, len(whole)
    starts = [match.span[0] for match in matches] or [0]
    most = max(
        starts, key=lambda start: len({match.term for match in matches if _inside(match.span, start, start + size)})
    )
    last = max((match.span[1] for match in matches if _inside(match.span, most, most + size)), default=most)
    start = max(0, min(most - (size - (last - most)) // 2, len(whole) - size))
    start = _word_start(whole, _boundary(whole, start), most)
    end = min(start + size, len(whole))
    return start, _word_end(whole, last, _boundary(whole, end))


def _inside(span: Span, start: int, end: int) -> bool:
    return start <= span[0] and span[1] <= end


def _marked(whole: str, spans: Sequence[Span], start: int, end: int) -> str:
    pieces, place = ["…" if start else ""], start
    for span in _merged(spans):
        if _inside(span, start, end):
            pieces += [whole[place : span[0]], "<mark>", whole[span[0] : span[1]], "</mark>"]
            place = span[1]
    pieces += [whole[place:end], "…" if end < len(whole) else ""]
    return "".join(pieces).strip()


def _merged(spans: Sequence[Span]) -> list[Span]:
    merged: list[Span] = []
    for start, end in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(end, merged[-1][1]))
        else:
            merged.append((start, end))
    return merged


def _boundary(whole: str, place: int) -> int:
    """Move back to where a character that people see begins: never inside an accent, an emoji or a flag of parts."""
    while 0 < place < len(whole) and _continues(whole[place - 1], whole[place]):
        place -= 1
    return place


def _continues(before: str, mark: str) -> bool:
    return (
        before == "\u200d"
        or mark in _JOINERS
        or "\U0001f3fb" <= mark <= "\U0001f3ff"
        or unicodedata.category(mark) in ("Mn", "Mc", "Me")
    )


def _word_end(whole: str, least: int, end: int) -> int:
    """Move back to the end of a word, at most 30 characters and not before `least`; stay where words have no ends."""
    if end >= len(whole) or not _joined(whole, end):
        return end
    for place in range(end - 1, max(least, end - 30), -1):
        if not _joined(whole, place):
            return place
    return end


def _word_start(whole: str, start: int, most: int) -> int:
    if start == 0 or not _joined(whole, start):
        return start
    return next((place for place in range(start + 1, min(most, start + 30)) if not _joined(whole, place)), start)


def _joined(whole: str, place: int) -> bool:
    """Say whether a cut here would part a word that spaces delimit."""
    return whole[place - 1].isalnum() and whole[place].isalnum() and not text.is_unspaced(whole[place - 1 : place + 1])
