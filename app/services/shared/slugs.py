"""Slugs: short names for URLs and command lines, made from a name in any script."""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

from app.errors import Invalid

MAX_LENGTH: Final = 100


def from_name(name: str) -> str:
    """Return a name's slug: lower case, letters and digits of any script joined by `-`; "" if there are none."""
    plain = unicodedata.normalize("NFKC", name).lower()
    return "-".join(re.findall(r"[^\W_]+", plain))[:MAX_LENGTH].strip("-")


def require_valid(slug: str) -> str:
    """Return the slug; Invalid unless it has the form that from_name() produces."""
    if not slug or slug != from_name(slug):
        raise Invalid.field("slug", "must be lower-case letters and digits of any script, joined by single hyphens")
    return slug


def make_unique(name: str, *, fallback: str, is_taken: Callable[[str], bool]) -> str:
    """Return a slug for a name that is not taken yet, with a number appended if necessary."""
    base = from_name(name) or fallback
    candidate, number = base, 1
    while is_taken(candidate):
        number += 1
        candidate = f"{base[: MAX_LENGTH - 6]}-{number}"
    return candidate
