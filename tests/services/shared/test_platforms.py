"""Names of agents, however a client spells them."""

import pytest

from app.services.shared import platforms


@pytest.mark.parametrize(
    ("spelling", "name"),
    [
        (None, "claude"),
        ("   ", "claude"),
        ("Claude Code", "claude"),
        ("openai-codex-cli", "codex"),
        (" CURSOR ", "cursor"),
        ("Gemini  CLI", "gemini-cli"),
    ],
)
def test_spellings_of_one_platform_become_one_name(spelling: str | None, name: str):
    """A platform that is not known keeps its own name."""
    assert platforms.normalise(spelling) == name
