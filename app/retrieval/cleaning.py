"""Cleans messages before they are stored. Pure functions, text in, text out.

Private and internal regions are removed first, and fail closed: whatever may be inside one is dropped.
"""

import re
from typing import Final

SILENT_ROLES: Final = frozenset({"system", "developer"})
"""Their messages say how an agent should behave, not what happened."""

_REGIONS: Final = (
    "private",
    "think",
    "thinking",
    "reasoning",
    "system",
    "system-reminder",
    "system-prompt",
    "system-instruction",
    "system-instructions",
    "claude-mem-context",
)
# A tag truncated by the end of the text counts as well.
_NAME: Final = "|".join(name.replace("-", "[-_]") for name in _REGIONS)
_TAG: Final = re.compile(
    rf"<\s*(?P<end>/?)\s*(?P<name>{_NAME})(?![\w-])[^<>]*(?:>|(?=<)|\Z)",
    re.IGNORECASE,
)

_FENCE: Final = re.compile(r"[ \t]*(?:`{3,}|~{3,})")
_INLINE_CODE: Final = re.compile(r"`{1,2}([^`\n]{1,500})`{1,2}")
_OPENS: Final = r"(?<![0-9A-Za-z*~])"
_CLOSES: Final = r"(?![0-9A-Za-z*~])"
# Lengths are bounded, so that no text takes long; `2**3**4`, `a * b` and `snake_case` are not emphasis.
_EMPHASIS: Final = re.compile(
    rf"{_OPENS}(\*{{1,3}}|~~)(?=[^\s*~])([^\n*~]{{1,500}})(?<=[^\s*~])\1{_CLOSES}",
)
_IN_LINES: Final = (
    (re.compile(r"!\[([^\]\n]{0,300})\]\([^)\n]{0,2000}\)"), r"\1"),
    (re.compile(r"\[([^\[\]\n]{1,300})\]\(([^\s()]{1,2000})(?: \"[^\"\n]{0,300}\")?\)"), r"\1 (\2)"),
    (_EMPHASIS, r"\2"),
    (_EMPHASIS, r"\2"),  # bold around italics
)
_RULE: Final = re.compile(r"(?:[-*_][ \t]*){3,}|(?=.*\|)\|?[ \t]*:?-+:?[ \t]*(?:\|[ \t]*:?-+:?[ \t]*)*\|?")
_LINE_START: Final = re.compile(r"(?:>[ \t]?)+|#{1,6}[ \t]+")
_BULLET: Final = re.compile(r"[*+•][ \t]+")
_LINE_END: Final = re.compile(r"<br\s{0,5}/?>", re.IGNORECASE)
_INVISIBLE: Final = re.compile("[\u200b\u200c\u2060\ufeff\u00ad]")
_BLANKS: Final = re.compile(r"[^\S\n]+")
_LINE_BREAK: Final = re.compile(r"\r\n?|[\u2028\u2029\x0b\x0c\x85]")
_MANY_LINES: Final = re.compile(r"\n{3,}")

_PREFIXES: Final = {
    "user": "User",
    "human": "User",
    "customer": "User",
    "client": "User",
    "assistant": "Assistant",
    "ai": "Assistant",
    "bot": "Assistant",
    "model": "Assistant",
    "agent": "Assistant",
    "support": "Assistant",
}


def speaker(role: str) -> str | None:
    """Return the prefix of a role's messages: `User`, `Assistant`, else its own name; None for system prompts."""
    name = role.strip().lower()
    if name in SILENT_ROLES:
        return None
    return _PREFIXES.get(name) or name.capitalize() or "User"


def clean(content: str) -> str:
    """Return a message without private and internal regions, Markdown formatting and redundant whitespace."""
    return strip_markdown(remove_private(_LINE_BREAK.sub("\n", content)))


def remove_private(content: str) -> str:
    """Return what is outside every private or internal region.

    Regions nest and overlap. An unclosed one extends to the end; an unopened one began before the text.
    """
    kept: list[str] = []
    depths: dict[str, int] = {}
    start = 0
    for tag in _TAG.finditer(content):
        if not any(depths.values()):
            kept.append(content[start : tag.start()])
        start = tag.end()
        name = tag["name"].lower().replace("_", "-")
        if not tag["end"]:
            depths[name] = depths.get(name, 0) + (0 if tag[0].endswith("/>") else 1)
        elif depths.get(name):
            depths[name] -= 1
        else:
            kept.clear()
    if not any(depths.values()):
        kept.append(content[start:])
    return "".join(kept)


def strip_markdown(content: str) -> str:
    """Return text without Markdown formatting and redundant whitespace; code keeps its lines, but not its fences."""
    lines: list[str] = []
    is_code = False
    for line in _LINE_END.sub("\n", _INVISIBLE.sub("", content)).split("\n"):
        if _FENCE.match(line):
            is_code = not is_code
        elif is_code:
            lines.append(line.rstrip())
        else:
            lines.append(_strip_line(line.strip()))
    return _MANY_LINES.sub("\n\n", "\n".join(lines)).strip()


def _strip_line(line: str) -> str:
    if not line or _RULE.fullmatch(line):
        return ""
    if (start := _LINE_START.match(line)) is not None:
        line = line[start.end() :]
    if (bullet := _BULLET.match(line)) is not None:
        line = "- " + line[bullet.end() :]
    if line.startswith("|") and line.endswith("|"):
        line = line.strip("|").strip()
    # Every second part is inline code.
    parts = _INLINE_CODE.split(_BLANKS.sub(" ", line))
    parts[::2] = [_strip_inline(part) for part in parts[::2]]
    return "".join(parts)


def _strip_inline(content: str) -> str:
    for marks, replacement in _IN_LINES:
        content = marks.sub(replacement, content)
    return content
