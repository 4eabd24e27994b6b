"""Which scripts a text is written in, as ISO 15924 codes; a model can read only some of them."""

import functools
import unicodedata
from collections.abc import Callable
from typing import Final

from app.retrieval import text

_CODES: Final = {
    "LATIN": "Latn",
    "CYRILLIC": "Cyrl",
    "GREEK": "Grek",
    "CJK": "Hani",
    "IDEOGRAPHIC": "Hani",
    "HIRAGANA": "Hira",
    "KATAKANA": "Kana",
    "KATAKANA-HIRAGANA": "Kana",
    "HANGUL": "Hang",
    "BOPOMOFO": "Bopo",
    "THAI": "Thai",
    "LAO": "Laoo",
    "KHMER": "Khmr",
    "MYANMAR": "Mymr",
    "ARABIC": "Arab",
    "HEBREW": "Hebr",
    "DEVANAGARI": "Deva",
    "BENGALI": "Beng",
    "TAMIL": "Taml",
    "ARMENIAN": "Armn",
    "GEORGIAN": "Geor",
    "ETHIOPIC": "Ethi",
}
UNKNOWN: Final = "Zzzz"


def readable_share(query: str, reads: Callable[[str], bool]) -> float:
    """Return the share of a query's words, 0…1, in scripts for which `reads` is true; 1 when it has no letters."""
    scripts = [script for word in text.words(query) if (script := _script(word[0]))]
    return sum(map(reads, scripts)) / len(scripts) if scripts else 1.0


@functools.lru_cache(maxsize=4_096)
def _script(letter: str) -> str | None:
    if not letter.isalpha():
        return None
    return _CODES.get(unicodedata.name(letter, "").split(" ")[0], UNKNOWN)
