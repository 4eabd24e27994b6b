"""Short names for addresses and command lines: made from a name in any script, unique where they live."""

import re
import unicodedata
from collections.abc import Callable
from typing import Final

from app.errors import Invalid

MAX_LENGTH: Final = 100


def from_name(name: str) -> str:
    """Return a slug of a name: lower case, letters and digits of any script joined by `-`; "" when none are left."""
    plain = unicodedata.normalize("NFKC", name).lower()
    return "-".join(re.findall(r"[^\W_]+", plain))[:MAX_LENGTH].strip("-")


def validated(slug: str) -> str:
    """Return a slug that was given; Invalid unless it is in the form that from_name() makes."""
    if not slug or slug != from_name(slug):
        raise Invalid.field("slug", "allowed are lower-case letters and digits of any script, joined by single hyphens")
    return slug


def free(name: str, *, fallback: str, is_taken: Callable[[str], bool]) -> str:
    """Return a slug made from a name that is not taken: with a number at its end where needed."""
    base = from_name(name) or fallback
    candidate, number = base, 1
    while is_taken(candidate):
        number += 1
        candidate = f"{base[: MAX_LENGTH - 6]}-{number}"
    return candidate
