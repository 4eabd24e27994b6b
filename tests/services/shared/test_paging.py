"""Cursors: opaque, and bound to the list that they were made for."""

import base64
import json
from dataclasses import replace

import pytest

from app.caller import Caller
from app.errors import Invalid
from app.services.shared import paging
from app.services.shared.paging import Cursor

CALLER = Caller(team_id="team", project_id="project")
BOUND_TO = paging.binding(CALLER, {"kind": "manual"})


def forged(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")


def test_cursor_returns_the_position_it_was_made_of():
    """In characters that need no escaping in a URL."""
    text = paging.encode(Cursor([1_779_235_200_000, "ÿ?ÿ>"], BOUND_TO))

    assert paging.decode(text, BOUND_TO) == [1_779_235_200_000, "ÿ?ÿ>"]
    assert text.replace("-", "").replace("_", "").isalnum()


@pytest.mark.parametrize(
    ("caller", "filters"),
    [
        (replace(CALLER, team_id="other"), {"kind": "manual"}),
        (replace(CALLER, project_id=None), {"kind": "manual"}),
        (CALLER, {"kind": "observation"}),
    ],
)
def test_cursor_of_another_list_is_rejected(caller: Caller, filters: dict[str, str]):
    """Another team, another scope or other filters make another list."""
    text = paging.encode(Cursor([1, 2], BOUND_TO))

    with pytest.raises(Invalid, match="not a cursor of this list"):
        paging.decode(text, paging.binding(caller, filters))


@pytest.mark.parametrize(
    "text",
    [
        "",
        "!",
        "é",
        forged("no cursor"),
        forged([[2**63], BOUND_TO]),
        forged([["\0"], BOUND_TO]),
        forged([[None], BOUND_TO]),
        forged([[1], BOUND_TO]) + "%",
    ],
)
def test_malformed_cursor_is_rejected(text: str):
    """Nothing that a database could not compare gets into a statement."""
    with pytest.raises(Invalid):
        paging.decode(text, BOUND_TO)
