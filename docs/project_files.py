"""A hook of MkDocs: pages may link to files of the project outside docs/, which become a part of the site.

On a code host such a link leads to the file itself; in the site, to its copy below `project/`. Only what is linked to
is copied, so that nothing private gets into the site.
"""

import os
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

ROOT: Final = Path(__file__).parents[1]
ROOT_PAGES: Final = ("README.md", "ARCHITECTURE.md", "CONTRIBUTING.md", "CHANGELOG.md", "SECURITY.md")
_LINK: Final = re.compile(r"(?<=\]\()([^)#\s]+)(?=[)#])")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages of the root folder, and every file outside docs/ that a page links to."""
    pages = [*ROOT_PAGES, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    linked = {path for page in pages for path in _linked_files(page) if not path.startswith("docs/")}
    for path in sorted({*ROOT_PAGES, *linked}):
        files.append(File.generated(config, _source_uri(path), abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Let the links of a page lead to where their targets are in the site."""
    own_uri = page.file.src_uri

    def in_site(match: re.Match[str]) -> str:
        path = _project_path(_path_of(own_uri), match[0])
        return match[0] if path is None else os.path.relpath(_source_uri(path), posixpath.dirname(own_uri) or ".")

    return _LINK.sub(in_site, markdown)


def _linked_files(page: str) -> Iterator[str]:
    for link in _LINK.findall((ROOT / page).read_text(encoding="utf-8")):
        path = _project_path(page, link)
        if path is not None and (ROOT / path).is_file():
            yield path


def _project_path(page: str, link: str) -> str | None:
    """Return the path within the project that a relative link leads to; None for a URL."""
    return None if ":" in link else posixpath.normpath(posixpath.join(posixpath.dirname(page), link))


def _source_uri(path: str) -> str:
    """Return where the site has a file of the project."""
    return path.removeprefix("docs/") if path.startswith("docs/") else f"project/{path}"


def _path_of(uri: str) -> str:
    """Return the path within the project of a page of the site."""
    return uri.removeprefix("project/") if uri.startswith("project/") else f"docs/{uri}"
