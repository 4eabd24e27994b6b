"""Synthetic memories whose words are as frequent as in real text: a few common, most of them rare (Zipf)."""

import itertools
import random
from collections.abc import Iterator
from typing import Any

_SYLLABLES = ("ga", "te", "pay", "ca", "che", "que", "lo", "mi", "ra", "to", "ken", "shar", "bat", "flo", "ren", "do")
VOCABULARY = ["".join(parts) for parts in itertools.product(_SYLLABLES, repeat=3)]
_WEIGHTS = list(itertools.accumulate(1 / (rank + 2.7) for rank in range(len(VOCABULARY))))


def words(random_source: random.Random, count: int) -> str:
    """Return `count` words, mostly common ones."""
    return " ".join(random_source.choices(VOCABULARY, cum_weights=_WEIGHTS, k=count))


def memories(count: int, *, seed: int = 1, length: int = 60) -> Iterator[dict[str, Any]]:
    """Yield the fields of memories of about `length` words; the same seed gives the same memories."""
    source = random.Random(seed)
    for number in range(count):
        yield {
            "kind": "observation",
            "type": "discovery",
            "title": f"{words(source, 6)} {seed}-{number}",
            "narrative": words(source, length),
            "facts": [words(source, 8)],
            "concepts": [words(source, 1)],
        }


def common_queries(*, seed: int = 8) -> list[str]:
    """Return queries of words that many memories have."""
    source = random.Random(seed)
    return [" ".join(source.sample(VOCABULARY[:12], 3)) for _ in range(40)]


def rare_queries(*, seed: int = 9) -> list[str]:
    """Return queries of words that few memories have."""
    source = random.Random(seed)
    return [" ".join(source.sample(VOCABULARY[400:2400], 2)) for _ in range(40)]


def queries(*, seed: int = 7) -> list[str]:
    """Return a fixed mix of queries: common words, rare words, both, and one that no memory has."""
    source = random.Random(seed)
    common, rare = VOCABULARY[:12], VOCABULARY[400:2400]
    mixes = ((3, 0), (0, 2), (2, 2), (4, 1), (1, 3))
    mixed = [source.sample(common, many) + source.sample(rare, few) for many, few in mixes * 8]
    return [" ".join(each) for each in mixed]
