"""Words that were typed with one slip: a letter too many, missing, wrong, or two exchanged."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from app.retrieval.text import Term

SHORTEST: Final = 6
"""Shorter words have too many others one letter away."""
MAX_CORRECTIONS: Final = 4
CORRECTED_WEIGHT: Final = 0.7


def beginning(term: Term) -> str | None:
    """Return what a word of several letters begins with, wherever the slip in its second half; None for others."""
    word = term.phrases[0][0]
    if len(term.phrases[0]) > 1 or len(word) < SHORTEST or not (word.isalpha() and word.isascii()):
        return None
    return word[: max(3, (len(word) - 1) // 2)]


def corrected(term: Term, known_words: Iterable[str]) -> Term | None:
    """Return the term for the known words that are one slip away, None when there is none."""
    word = term.phrases[0][0]
    near = sorted({known for known in known_words if is_one_slip(word, known)})[:MAX_CORRECTIONS]
    if not near:
        return None
    return replace(term, phrases=tuple((known,) for known in near), weight=CORRECTED_WEIGHT * term.weight)


def is_one_slip(one: str, other: str) -> bool:
    """Say whether two different words are one edit apart (Damerau 1964: insert, delete, replace, exchange)."""
    if one == other or abs(len(one) - len(other)) > 1:
        return False
    start = next(
        (place for place, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other))
    )
    a, b = one[start:], other[start:]
    if len(a) == len(b):
        return a[1:] == b[1:] or (a[:2] == b[1::-1] and a[2:] == b[2:])
    return a[1:] == b if len(a) > len(b) else a == b[1:]
