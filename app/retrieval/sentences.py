"""Texts cut into sentences and pieces, never between a number, price or date and what it is about. Pure."""

import re
from collections.abc import Iterator
from typing import Final

_END: Final = re.compile(r"(?<=[。！？；…\n])|(?<=[.!?;])(?<!\n\d\.)(?<!\n\d\d\.)(?=\s)")
_GOES_ON: Final = re.compile(r"\s*(?!\d{1,2}[.)]\s)[-–(\[\"'“]?\s*(?:[$€£¥￥#~≈]|USD|EUR|RMB|CNY)?\s*\d", re.IGNORECASE)
"""A number, price or date belongs to what stands before it; the number of a list item does not."""
_INTRODUCES: Final = re.compile(r"[:：=]\s*$")
_WORD_END: Final = re.compile(r"(?<=[^\d\s][\s，、,])(?=[^\s\d$€£¥￥#])")
_NUMBER_REACH: Final = 40
"""Digits beyond so many are no number that somebody would look for."""


def of(said: str) -> list[str]:
    """Return the sentences of a text, a number and what introduces it in one; joined they are the text."""
    sentences = [""]
    for sentence in _END.split(said):
        if not sentence.strip() or _GOES_ON.match(sentence) or _INTRODUCES.search(sentences[-1]):
            sentences[-1] += sentence
        else:
            sentences.append(sentence)
    return sentences[1:] if not sentences[0] and len(sentences) > 1 else sentences


def pieces(said: str, *, max_characters: int, first: int) -> Iterator[str]:
    """Yield a text in pieces of whole sentences, the first of about `first` characters.

    A sentence that is longer than `max_characters` is cut between words.
    """
    piece, room = "", first
    for sentence in of(said):
        for bounded in _cut_at_words(sentence, max_characters):
            if piece and len(piece) + len(bounded) > room:
                yield piece.strip()
                piece, room = "", max_characters
            piece += bounded
    if piece.strip():
        yield piece.strip()


def _cut_at_words(sentence: str, max_characters: int) -> Iterator[str]:
    start = 0
    while len(sentence) - start > max_characters:
        window = sentence[start : start + max_characters]
        end = start + max((found.start() for found in _WORD_END.finditer(window)), default=0)
        if end == start:
            end = _beside_number(sentence, start + max_characters)
        yield sentence[start:end]
        start = end
    yield sentence[start:]


def _beside_number(sentence: str, end: int) -> int:
    """Return a place that is not inside a number, a little before `end` or there."""
    places = range(end, max(end - _NUMBER_REACH, 1), -1)
    return next((place for place in places if not sentence[place - 1 : place + 1].isdigit()), end)
