"""`teams`: created and listed for anyone who can open the database."""

import json
from collections.abc import Callable

from click.testing import Result

from app.caller import Caller


def test_teams_are_created_and_listed(command: Callable[..., Result], owner: Caller):
    """For a script as JSON, for a person as a table with the slug first."""
    made = json.loads(command("teams", "create", "Second Team", "--json").stdout)
    listed = json.loads(command("teams", "list", "--json").stdout)

    assert (made["name"], made["slug"]) == ("Second Team", "second-team")
    assert sorted(team["slug"] for team in listed) == ["a", "second-team"]
    assert [line.split()[0] for line in command("teams", "list").output.splitlines() if made["id"] in line] == [
        "second-team"
    ]


def test_a_taken_slug_is_refused_in_one_line(command: Callable[..., Result], owner: Caller):
    """The list stays as it was."""
    refused = command("teams", "create", "Another", "--slug", "a")

    assert (refused.exit_code, refused.output.startswith("Error: ")) == (1, True)
    assert len(json.loads(command("teams", "list", "--json").stdout)) == 1
