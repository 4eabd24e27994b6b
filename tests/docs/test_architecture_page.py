"""ARCHITECTURE.md names every package, and its glossary is short."""

import re
from typing import Final

from tests.docs.pages import MarkdownPage
from tests.modules import MODULES
from tests.test_architecture import SERVICE_TOPICS

PAGE: Final = MarkdownPage("ARCHITECTURE.md")
MOST_WORDS: Final = 25


def test_every_package_is_described():
    """In a row of the table of packages."""
    packages = {module.package for module in MODULES} - {"app"}
    rows = re.findall(r"^\| (`[^|]+) \|", PAGE.section("Packages"), re.MULTILINE)
    described = {name for row in rows for name in re.findall(r"`(\w+)`", row)}

    assert packages
    assert described == packages


def test_topics_of_services_are_listed_in_their_order():
    """A topic imports only those before it, so the order is worth knowing."""
    assert ", ".join(f"`{topic}`" for topic in SERVICE_TOPICS) in PAGE.text


def test_the_glossary_is_short():
    """A newcomer can learn it."""
    terms = re.findall(r"^\| ([^|]+) \|", PAGE.section("Glossary"), re.MULTILINE)[2:]

    assert 10 <= len(terms) <= MOST_WORDS
