"""Slugs: made from names in any script, and made unique."""

import pytest

from app.errors import Invalid
from app.services.shared import slugs


@pytest.mark.parametrize(
    ("name", "slug"),
    [
        ("My Project", "my-project"),
        ("  a_b--c!  ", "a-b-c"),
        ("東京 プロジェクト", "東京-プロジェクト"),
        ("ﬁle №1", "file-no1"),
        ("🙂", ""),
        ("x" * 99 + " yz", "x" * 99),
    ],
)
def test_slug_joins_letters_and_digits_of_any_script(name: str, slug: str):
    """A cut at a hundred characters leaves no hyphen at the end."""
    assert slugs.from_name(name) == slug


@pytest.mark.parametrize("slug", ["", "My-project", "a--b", "-a", "a b", "a_b", "x" * 101])
def test_slug_in_another_form_is_rejected(slug: str):
    """Only what from_name() could have produced is valid."""
    with pytest.raises(Invalid, match="slug: must be lower-case"):
        slugs.require_valid(slug)


def test_taken_slug_gets_the_first_free_number():
    """A name without letters uses the fallback."""
    taken = {"team", "team-2"}

    assert slugs.make_unique("🙂", fallback="team", is_taken=taken.__contains__) == "team-3"


def test_numbered_slug_of_a_long_name_stays_valid():
    """The number does not push it over the limit."""
    taken = {"x" * 100}
    slug = slugs.make_unique("x" * 200, fallback="team", is_taken=taken.__contains__)

    assert slugs.require_valid(slug) == "x" * 94 + "-2"
