"""Which agent something came from, under one name however its clients spell it."""

from typing import Final

_FAMILIES: Final = ("claude", "codex", "cursor")
DEFAULT: Final = "claude"


def normalise(platform_source: str | None) -> str:
    """Return the family's name (`Claude Code` is claude), else trimmed lower case with `-` for spaces."""
    if platform_source is None:
        return DEFAULT
    name = platform_source.strip().lower()
    for family in _FAMILIES:
        if family in name:
            return family
    return "-".join(name.split()) or DEFAULT
