"""Normalised names of the agents that data comes from, however their clients spell them."""

from typing import Final

_FAMILIES: Final = ("claude", "codex", "cursor")
DEFAULT: Final = "claude"


def normalise(platform_source: str | None) -> str:
    """Return the family's name (`Claude Code` -> `claude`), else the trimmed, lower-case name with `-` for spaces."""
    if platform_source is None:
        return DEFAULT
    name = platform_source.strip().lower()
    for family in _FAMILIES:
        if family in name:
            return family
    return "-".join(name.split()) or DEFAULT
