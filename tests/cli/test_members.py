"""`members`: the same rules as over HTTP, for anyone who can open the database."""

import json
from collections.abc import Callable
from typing import Any

from click.testing import Result

from app.caller import Caller


def shown(result: Result) -> Any:
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def test_members_are_added_listed_and_removed(command: Callable[..., Result], owner: Caller):
    """The last owner cannot be removed."""
    added = shown(command("members", "add", "ann", "--team", "a", "--role", "owner", "--json"))
    command("members", "add", "bob", "--team", "a")

    assert {name: added[name] for name in ("userId", "role")} == {"userId": "ann", "role": "owner"}
    listed = shown(command("members", "list", "--team", "a", "--json"))
    assert [(member["userId"], member["role"]) for member in listed] == [("ann", "owner"), ("bob", "member")]
    assert shown(command("members", "remove", "bob", "--team", "a", "--json")) == {"deleted": True, "userId": "bob"}
    last = command("members", "remove", "ann", "--team", "a")
    assert (last.exit_code, "A team needs at least one owner" in last.output) == (1, True)
