"""Links lead to files of the project and to headings that exist, and the README is short."""

import re
from typing import Final

import pytest

from tests import ROOT
from tests.docs.pages import IDS, PAGES, README, MarkdownPage

LONGEST_README_BYTES: Final = 9_000
GUARANTEES: Final = MarkdownPage("docs/guarantees.md")
TEST_FILES: Final = re.compile(r"`(tests/[^`]+\.py)`")
pages = pytest.mark.parametrize("page", PAGES, ids=IDS)


def broken_links(page: MarkdownPage) -> list[str]:
    """Return the links of a page whose file or heading does not exist."""
    return [link for link in page.links() if ":" not in link and not _exists(page, link)]


def _exists(page: MarkdownPage, link: str) -> bool:
    path, _, anchor = link.partition("#")
    target = (page.folder / path).resolve() if path else (ROOT / page.path)
    if not target.is_relative_to(ROOT) or not target.exists():
        return False
    return not anchor or anchor in MarkdownPage(target.relative_to(ROOT).as_posix()).anchors()


@pages
def test_every_relative_link_leads_to_a_file_and_a_heading(page: MarkdownPage):
    """Within the project."""
    assert broken_links(page) == []


def test_links_are_found():
    """There are many of them, and the README has its share."""
    assert len([link for page in PAGES for link in page.links()]) > 100
    assert len(README.links()) > 20


@pytest.mark.parametrize("link", ["nowhere.md", "docs/index.md#nothing", "../outside.md"])
def test_a_broken_link_is_noticed(link: str):
    """The test above can fail."""
    assert not _exists(README, link)


def test_the_readme_links_to_files_of_the_project_only():
    """The project speaks of itself alone."""
    assert [link for link in README.links() if not (ROOT / link).exists()] == []
    assert "../" not in README.text


@pages
def test_no_page_links_to_another_host(page: MarkdownPage):
    """The pages can be read without internet access."""
    assert [link for link in page.links() if ":" in link] == []


def test_the_readme_is_short():
    """Details belong in docs/."""
    assert len((ROOT / "README.md").read_bytes()) <= LONGEST_README_BYTES


def test_every_guarantee_names_a_test_that_exists():
    """Nothing is promised that no test enforces."""
    rows = [row for row in GUARANTEES.text.splitlines() if row.startswith("| ") and "| tests |" not in row]

    assert len(rows) >= 8
    assert [row for row in rows if not TEST_FILES.search(row)] == []


@pages
def test_every_test_file_of_a_page_exists(page: MarkdownPage):
    """Tests move; the pages follow."""
    named = [name for name in TEST_FILES.findall(page.text) if "<" not in name]

    assert [name for name in named if not (ROOT / name).is_file()] == []


@pages
def test_every_folder_of_a_page_exists(page: MarkdownPage):
    """Files and folders of the code are named by their path."""
    named = [code for code in page.inline_code() if re.fullmatch(r"(?:app|docs|migrations|docker)/[\w./-]+", code)]

    assert [name for name in named if not (ROOT / name).exists()] == []
