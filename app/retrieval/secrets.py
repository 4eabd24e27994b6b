"""Masks what looks like a key, a token or a password before it leaves the server in a context."""

import re
from typing import Final

MASK: Final = "[masked]"

_SECRET: Final = re.compile(
    r"""
    -----BEGIN[ ][A-Z ]*PRIVATE[ ]KEY-----.*?(?:-----END[ ][A-Z ]*PRIVATE[ ]KEY-----|\Z)
    | \b(?:sk|pk|rk)[-_][A-Za-z0-9_-]{16,}
    | \b(?:gh[pousr]_[A-Za-z0-9]{20,}|github_pat_\w{20,}|glpat-[\w-]{16,}|xox[abeprs]-[\w-]{10,}|hf_[A-Za-z0-9]{20,})
    | \b(?:AKIA|ASIA)[0-9A-Z]{16}\b
    | \bAIza[\w-]{30,}
    | \bcmem_[0-9A-Za-z]+_[0-9A-Za-z]+
    | \beyJ[\w-]{10,}\.[\w-]{10,}\.[\w-]*
    """,
    re.VERBOSE | re.DOTALL,
)
# A name that announces a secret, and a value unlike a word of a sentence: six characters or more, with a digit.
_NAMED: Final = re.compile(
    r"""(?P<name>(?:pass(?:word|wd|phrase)|secret|api[_-]?key|access[_-]?key|token|密码|口令)["']?\s*(?:[:=：]|\bis\b|是)\s*["']?
        |\bBearer\s+|://[^\s/:@]+:)
        (?P<value>(?=[^\s"',;@]*\d)[^\s"',;@]{6,})""",
    re.IGNORECASE | re.VERBOSE,
)


def mask(text: str) -> str:
    """Return the text with what looks like a secret replaced by `[masked]`."""
    return _NAMED.sub(lambda match: match["name"] + MASK, _SECRET.sub(MASK, text))
