"""`projects`: created and listed for anyone who can open the database."""

import json
from collections.abc import Callable

from click.testing import Result

from app.caller import Caller


def test_projects_are_created_and_listed_within_their_team(command: Callable[..., Result], owner: Caller):
    """A slug that is omitted is made from the name."""
    command("teams", "create", "other")
    command("projects", "create", "foreign", "--team", "other")
    made = json.loads(command("projects", "create", "My Project", "--team", "a", "--json").stdout)
    named = command("projects", "create", "Second", "--team", "a", "--slug", "two")
    listed = json.loads(command("projects", "list", "--team", "a", "--json").stdout)

    assert {name: made[name] for name in ("teamId", "name", "slug")} == {
        "teamId": owner.team_id,
        "name": "My Project",
        "slug": "my-project",
    }
    assert named.output.startswith("two  ")
    assert sorted(project["slug"] for project in listed) == ["my-project", "two"]


def test_a_project_of_an_unknown_team_is_refused_in_one_line(command: Callable[..., Result], owner: Caller):
    """Nothing is created."""
    refused = command("projects", "create", "p", "--team", "nobody")

    assert (refused.exit_code, refused.output) == (1, "Error: There is no such team.\n")
