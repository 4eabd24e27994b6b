"""Splits texts into sentences and pieces, never between a number, price or date and its subject. Pure functions."""

import re
from collections.abc import Iterator
from typing import Final

_END: Final = re.compile(r"(?<=[。！？；…\n])|(?<=[.!?;])(?<!\n\d\.)(?<!\n\d\d\.)(?=\s)")
_GOES_ON: Final = re.compile(r"\s*(?!\d{1,2}[.)]\s)[-–(\[\"'“]?\s*(?:[$€£¥￥#~≈]|USD|EUR|RMB|CNY)?\s*\d", re.IGNORECASE)
"""A number, price or date belongs to the text before it; the number of a list item does not."""
_INTRODUCES: Final = re.compile(r"[:：=]\s*$")
_WORD_END: Final = re.compile(r"(?<=[^\d\s][\s，、,])(?=[^\s\d$€£¥￥#])")
_MAX_NUMBER_LENGTH: Final = 40
"""Longer runs of digits are not numbers that anyone would search for."""


def of(content: str) -> list[str]:
    """Return the sentences of a text, each number in one with what introduces it; joined, they are the text."""
    sentences = [""]
    for sentence in _END.split(content):
        if not sentence.strip() or _GOES_ON.match(sentence) or _INTRODUCES.search(sentences[-1]):
            sentences[-1] += sentence
        else:
            sentences.append(sentence)
    return sentences[1:] if not sentences[0] and len(sentences) > 1 else sentences


def pieces(content: str, *, max_characters: int, first: int) -> Iterator[str]:
    """Yield a text in pieces of whole sentences, the first of about `first` characters.

    A sentence longer than `max_characters` is split between words.
    """
    piece, room = "", first
    for sentence in of(content):
        for bounded in _split_at_words(sentence, max_characters):
            if piece and len(piece) + len(bounded) > room:
                yield piece.strip()
                piece, room = "", max_characters
            piece += bounded
    if piece.strip():
        yield piece.strip()


def _split_at_words(sentence: str, max_characters: int) -> Iterator[str]:
    start = 0
    while len(sentence) - start > max_characters:
        window = sentence[start : start + max_characters]
        end = start + max((match.start() for match in _WORD_END.finditer(window)), default=0)
        if end == start:
            end = _outside_number(sentence, start + max_characters)
        yield sentence[start:end]
        start = end
    yield sentence[start:]


def _outside_number(sentence: str, end: int) -> int:
    """Return a position that is not inside a number, at `end` or shortly before."""
    positions = range(end, max(end - _MAX_NUMBER_LENGTH, 1), -1)
    return next((position for position in positions if not sentence[position - 1 : position + 1].isdigit()), end)
