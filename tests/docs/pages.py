"""The pages of the project as the tests read them: their code blocks, inline code, tables and links."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from tests import ROOT

_BLOCK: Final = re.compile(r"^( *)```(\w*)\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
_INLINE: Final = re.compile(r"`([^`\n]+)`")
_LINK: Final = re.compile(r"\]\(([^)\s]+)\)")
_HEADING: Final = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class MarkdownPage:
    """A page, by its path within the project."""

    path: str

    @cached_property
    def text(self) -> str:
        """Return the whole page."""
        return (ROOT / self.path).read_text(encoding="utf-8")

    @cached_property
    def prose(self) -> str:
        """Return the page without its code blocks."""
        return _BLOCK.sub("", self.text)

    @property
    def folder(self) -> Path:
        """Return the folder that relative links start from."""
        return (ROOT / self.path).parent

    def blocks(self, language: str) -> list[str]:
        """Return the code blocks in a language, without their indentation."""
        found = [(indent, code) for indent, name, code in _BLOCK.findall(self.text) if name == language]
        return [re.sub(rf"^{indent}", "", code, flags=re.MULTILINE) for indent, code in found]

    def shell_lines(self) -> Iterator[str]:
        """Yield the lines of the shell blocks."""
        for block in self.blocks("sh"):
            yield from block.splitlines()

    def inline_code(self) -> list[str]:
        """Return what is set as code within the prose."""
        return _INLINE.findall(self.prose)

    def links(self) -> list[str]:
        """Return the targets of all links."""
        return _LINK.findall(self.prose)

    def anchors(self) -> set[str]:
        """Return the anchors of the headings."""
        plain = [re.sub(r"[^\w\s-]", "", heading.lower()).strip() for heading in _HEADING.findall(self.prose)]
        return {re.sub(r"[\s-]+", "-", heading) for heading in plain}

    def section(self, title: str) -> str:
        """Return what is below a heading of the second level."""
        return self.text.split(f"\n## {title}\n")[1].split("\n## ")[0]

    def first_column(self) -> set[str]:
        """Return the code in the first column of the tables, with or without a link."""
        return set(re.findall(r"^\| \[?`([^`]+)`[^|]* \|", self.text, re.MULTILINE))


README: Final = MarkdownPage("README.md")
PAGES: Final = [
    MarkdownPage(path.relative_to(ROOT).as_posix())
    for path in sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md")])
]
"""Every page: those of the root folder, and those of docs/."""
IDS: Final = [page.path for page in PAGES]
