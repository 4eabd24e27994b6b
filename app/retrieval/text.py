"""The tokeniser: one for what is stored, searched and counted.

Owns scripts, folding, identifiers and stems. Knows nothing of tables or of how an index is queried.
"""

import bisect
import functools
import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, groupby, pairwise

import Stemmer

from app.retrieval import stopwords

MAX_QUERY_CHARS = 4_000
MAX_TERMS = 64
PART_WEIGHT = 0.5

# Scripts without spaces between words, and Hangul, whose particles are attached to the word: each character is a word.
UNSPACED = (
    "\u0e01-\u0e30\u0e40-\u0e46\u0e81-\u0eb0\u0ec0-\u0ec6\u1000-\u102a\u1780-\u17b3"  # Thai, Lao, Burmese, Khmer
    "\u3005-\u3007\u3040-\u3096\u309d-\u309f\u30a1-\u30fa\u30fc-\u30ff\u3105-\u312f\u31f0-\u31ff"  # kana, bopomofo
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U000323af"  # Han
    "\uac00-\ud7a3"  # Hangul
)
SYMBOLS = "\u2190-\u21ff\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001f3fa\U0001f400-\U0001faff"
# A private-use character is a word to the index, and never part of a query: no phrase matches across it.
BOUNDARY = "\ue000"

# Optional in writing: accents, Hebrew points, Arabic vowel signs and tatweel. (Not U+0306: й is a letter.)
_MARKS = "\u0300-\u0305\u0307-\u036f\u0591-\u05bd\u05bf-\u05c7\u0640\u064b-\u065f\u0670\u06d6-\u06ed"


def _word_pattern(letter: str) -> re.Pattern[str]:
    return re.compile(
        rf"(?<![^\W_])(?:[cg]\+\+|[cf]#)(?![^\W_])|[{UNSPACED}]|[{SYMBOLS}]|{letter}+"
        rf"|(?<=[{UNSPACED}])[^\w\s]+(?=[{UNSPACED}])",
        re.IGNORECASE,
    )


_WORD = _word_pattern(rf"[^\W_{UNSPACED}{SYMBOLS}]")
_WORD_AS_WRITTEN = _word_pattern(rf"(?:[^\W_{UNSPACED}{SYMBOLS}][{_MARKS}\u0306]*)")
_ASCII_WORD = re.compile("[0-9A-Za-z]+")
_PLAIN_WORD = re.compile(r"[^\W_]+")
_HOLDS_UNSPACED = re.compile(f"[{UNSPACED}]").search
_IS_SYMBOL = re.compile(f"[{SYMBOLS}]").match
_CAMEL_EDGE = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])")
_VERSION = re.compile(r"v(?=\d)", re.IGNORECASE)
_MAY_HAVE_EXTRA = re.compile(r"[^\x00-\x7f]|[a-z0-9][A-Z]|[A-Z]{2}[a-z]|[vV]\d|\+\+|#").search
_CONTRACTION = re.compile(r"(?<=\w)(?:n['’]t|['’](?:s|re|ve|ll|d|m))\b", re.IGNORECASE)
_LATIN_ACCENTS = re.compile("(?<=[A-Za-z])[\u0300-\u036f]+")
_OPTIONAL_MARK = re.compile(f"(?<![иИ])\u0306|[{_MARKS}]")
_LETTERS = str.maketrans(
    dict(zip("ıøØłŁđĐ", "ioOlLdD", strict=True))
    | {"æ": "ae", "Æ": "Ae", "œ": "oe", "Œ": "Oe"}
    | dict.fromkeys("\u00ad\u200d\u2060\ufeff\ufe0e\ufe0f", "")  # invisible inside a word or a symbol
)
_NAMED = {"c++": "cplusplus", "g++": "gplusplus", "c#": "csharp", "f#": "fsharp"}

_stem = functools.lru_cache(maxsize=65_536)(Stemmer.Stemmer("porter", 0).stemWord)


Phrases = tuple[tuple[str, ...], ...]
"""Alternatives, each a sequence of folded words."""


@dataclass(frozen=True, slots=True)
class Term:
    """One unit of a query, and its weight."""

    phrases: Phrases
    weight: float = 1.0

    @property
    def patterns(self) -> tuple[str, ...]:
        """The phrases in the format of `marked()`, to be counted in it."""
        return _patterns(self.phrases)


@functools.lru_cache(maxsize=4_096)
def _patterns(phrases: Phrases) -> tuple[str, ...]:
    return tuple(dict.fromkeys("".join(map(_mark, phrase)) for phrase in phrases))


def normalise(text: str) -> str:
    """Return text in one spelling (compatibility forms, optional marks, special letters), preserving case."""
    if text.isascii():
        return text
    stripped = _OPTIONAL_MARK.sub("", unicodedata.normalize("NFKD", text)).translate(_LETTERS)
    return unicodedata.normalize("NFC", stripped)


def words(text: str) -> list[str]:
    """Return the folded words of a text in order; an identifier in camelCase is followed by its parts."""
    return [word for raw in _raw_words(text) for word in _forms(raw)]


def marked(text: str) -> str:
    """Return the stems of a text as a sequence of `<stem>`, so that `str.count` counts words and phrases."""
    return "".join(map(_marked_forms, _raw_words(text)))


def index_text(fields: Iterable[str | None]) -> str | None:
    """Return the words of the fields that `porter unicode61` would not produce, or None when there are none.

    They keep their order, so that phrases match, with a boundary wherever words between them were left out.
    """
    pieces: list[str] = []
    for field in fields:
        if field and _MAY_HAVE_EXTRA(field):
            pieces += [piece for chunk in field.split() for piece in _extra_words(chunk)]
            pieces.append(BOUNDARY)
    kept = [piece for before, piece in pairwise([BOUNDARY, *pieces]) if not before == piece == BOUNDARY]
    return " ".join(kept).rstrip(f" {BOUNDARY}") or None


def index_words(text: str) -> list[str]:
    """Return the stems that FTS5's `porter unicode61` produces for a plain text.

    FTS5 does not stem words of fewer than three or more than 64 bytes.
    """
    return [_stem(word) if 3 <= len(word.encode()) <= 64 else word for word in _plain_words(text)]


def terms(query: str) -> tuple[Term, ...]:
    """Return the terms of a query, in order, without repeats and at most `MAX_TERMS`.

    Everything in it is text, never syntax. Stop words are dropped if other words remain.
    """
    chunks = _CONTRACTION.sub("", query[:MAX_QUERY_CHARS]).split()
    repeated = [term for chunk in chunks for term in _chunk_terms(chunk)]
    strongest = {term.phrases: term for term in sorted(repeated, key=lambda term: term.weight)}
    unique = [strongest[phrases] for phrases in dict.fromkeys(term.phrases for term in repeated)]
    stop = stopwords.among({"".join(term.phrases[0]) for term in unique})
    significant = [term for term in unique if "".join(term.phrases[0]) not in stop]
    return tuple((significant or unique)[:MAX_TERMS])


@dataclass(frozen=True, slots=True)
class Match:
    """An occurrence of a term in a text: the index of the term, and the characters from start to end."""

    term: int
    span: tuple[int, int]


def matches(original: str, terms: Sequence[Term]) -> list[Match]:
    """Return where the terms occur in the original text."""
    raw = list((_ASCII_WORD if _is_plain(original) else _WORD_AS_WRITTEN).finditer(original))
    mark = _marked_forms if original.isascii() else marked
    marks = [mark(match.group()) for match in raw]
    ends = list(accumulate(map(len, marks)))
    marked_text = "".join(marks)
    occurrences = []
    for index, term in enumerate(terms):
        for pattern in term.patterns:
            for hit in re.finditer(re.escape(pattern), marked_text):
                first, last = bisect.bisect_right(ends, hit.start()), bisect.bisect_left(ends, hit.end())
                occurrences.append(Match(index, (raw[first].start(), _mark_end(original, raw[last].end()))))
    return occurrences


def is_question(text: str) -> bool:
    """Return whether a text ends with a question mark."""
    return text.rstrip().endswith(("?", "？", "؟"))


def is_unspaced(text: str) -> bool:
    """Return whether a text has a character of a script without spaces between words."""
    return bool(_HOLDS_UNSPACED(text))


def _mark_end(original: str, end: int) -> int:
    """Move past the accents of the last letter."""
    while end < len(original) and unicodedata.combining(original[end]):
        end += 1
    return end


def _raw_words(text: str) -> list[str]:
    return _ASCII_WORD.findall(text) if _is_plain(text) else _WORD.findall(normalise(text))


def _is_plain(text: str) -> bool:
    """Return whether the simple pattern suffices: it does for most English text, and takes half the time."""
    return text.isascii() and "+" not in text and "#" not in text


def _chunk_terms(chunk: str) -> Iterator[Term]:
    """Yield pairs of unspaced characters, single words, and identifiers both whole and in parts."""
    raw = _raw_words(chunk)
    runs = [list(run) for unspaced, run in groupby(raw, key=is_unspaced) if not unspaced]
    for run in runs:
        # Rows written by other programs have no extra words, so an identifier also matches in the index's own spelling.
        yield from _identifier_terms(run, plain=tuple(_plain_words(chunk)) if len(run) == len(raw) else ())
    yield from (Term(((a.casefold(), b.casefold()),)) for a, b in pairwise(raw) if _are_unspaced_pair(a, b))
    if len(raw) == 1 and is_unspaced(raw[0]):
        yield Term(((raw[0],),))


def _are_unspaced_pair(a: str, b: str) -> bool:
    return is_unspaced(a + b) and a[0].isalnum() and b[0].isalnum()


def _identifier_terms(raw: list[str], *, plain: tuple[str, ...]) -> Iterator[Term]:
    forms = [_forms(word) for word in raw if _forms(word) != (BOUNDARY,)]
    whole = tuple(form[0] for form in forms)
    parts_in_order = tuple(word for form in forms for word in form[1:] or form)
    letters = tuple(word[0].casefold() for word in raw if word.casefold() in _NAMED)
    if whole:
        # C++ is not C, whatever the index makes of it.
        spellings = (whole, parts_in_order) if letters else (whole, parts_in_order, plain)
        yield Term(tuple(phrase for phrase in dict.fromkeys(spellings) if phrase))
    parts = letters + (parts_in_order if len(parts_in_order) > 1 else ())
    yield from (Term(((part,),), PART_WEIGHT) for part in parts)


def _extra_words(chunk: str) -> list[str]:
    extra = words(chunk)
    return extra if extra != _plain_words(chunk) else [BOUNDARY]


def _plain_words(chunk: str) -> list[str]:
    """Return the words that `unicode61 remove_diacritics 2` produces for a chunk of text."""
    folded = _LATIN_ACCENTS.sub("", unicodedata.normalize("NFD", chunk))
    return _PLAIN_WORD.findall(unicodedata.normalize("NFC", folded).lower())


@functools.lru_cache(maxsize=65_536)
def _forms(raw: str) -> tuple[str, ...]:
    """Return the folded word, then its parts, if any. A version also matches without its `v`."""
    folded = raw.casefold()
    if folded in _NAMED:
        return (_NAMED[folded],)
    if _IS_SYMBOL(raw):
        return (f"symbol{ord(raw):x}",)
    if not raw[0].isalnum():
        return (BOUNDARY,)
    if _VERSION.match(raw):
        return (folded, folded[1:])
    parts = [part.casefold() for part in _CAMEL_EDGE.split(raw)]
    return (folded, *parts) if len(parts) > 1 else (folded,)


@functools.lru_cache(maxsize=65_536)
def _marked_forms(raw: str) -> str:
    return "".join(map(_mark, _forms(raw)))


def _mark(word: str) -> str:
    return f"<{_stem(word)}>"
