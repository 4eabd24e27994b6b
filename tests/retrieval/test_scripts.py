"""Which share of a query a model can read."""

import pytest

from app.retrieval import scripts


@pytest.mark.parametrize(
    ("query", "share"),
    [
        ("renew the token", 1.0),
        ("обновить токен", 0.0),
        ("renew токен", 0.5),
        ("2026 — 42?", 1.0),
        ("", 1.0),
    ],
)
def test_share_counts_words_in_readable_scripts(query: str, share: float):
    """Numbers and punctuation have no script, and a query of nothing else can be read."""
    assert scripts.readable_share(query, "Latn".__eq__) == share


@pytest.mark.parametrize(
    ("word", "script"),
    [
        ("token", "Latn"),
        ("токен", "Cyrl"),
        ("令", "Hani"),
        ("々", "Hani"),
        ("と", "Hira"),
        ("ト", "Kana"),
        ("토큰", "Hang"),
        ("โทเค็น", "Thai"),
        ("رمز", "Arab"),
        ("टोकन", "Deva"),
        ("ᚠ", scripts.UNKNOWN),
    ],
)
def test_script_is_an_iso_15924_code(word: str, script: str):
    """A script without a code of its own is one that no model claims to read."""
    seen = set()
    scripts.readable_share(word, lambda code: bool(seen.add(code)))

    assert seen == {script}
