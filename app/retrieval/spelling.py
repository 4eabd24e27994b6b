"""Misspelt words, one edit from a known one: a letter too many, missing, wrong, or two transposed."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from app.retrieval.text import Term

MIN_LENGTH: Final = 6
"""Shorter words have too many others one edit away."""
MAX_CORRECTIONS: Final = 4
CORRECTED_WEIGHT: Final = 0.7


def prefix(term: Term) -> str | None:
    """Return the prefix of a long word in which no misspelling of its second half is; None for other terms."""
    word = term.phrases[0][0]
    if len(term.phrases[0]) > 1 or len(word) < MIN_LENGTH or not (word.isalpha() and word.isascii()):
        return None
    return word[: max(3, (len(word) - 1) // 2)]


def correct(term: Term, known_words: Iterable[str]) -> Term | None:
    """Return the term for the known words one edit away, or None if there are none."""
    word = term.phrases[0][0]
    corrections = sorted({known for known in known_words if is_one_edit(word, known)})[:MAX_CORRECTIONS]
    if not corrections:
        return None
    return replace(term, phrases=tuple((known,) for known in corrections), weight=CORRECTED_WEIGHT * term.weight)


def is_one_edit(one: str, other: str) -> bool:
    """Return whether two different words are one edit apart (Damerau, 1964: insert, delete, substitute, transpose)."""
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    start = next(
        (index for index, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    a, b = one[start:], other[start:]
    if len(a) == len(b):
        return a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
    return a[1:] == b if len(a) > len(b) else a == b[1:]
