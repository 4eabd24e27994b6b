"""`audit prune` as a person and as a script use it."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from app.caller import Caller
from app.services.projects import projects
from app.store.database import Database

Command = Callable[..., Result]


def test_a_dry_run_counts_what_the_run_then_deletes(
    command: Command, store: Database, owner: Caller, monkeypatch: pytest.MonkeyPatch
):
    """The count is exact."""
    with store.write() as connection:
        projects.create(connection, owner, name="p")
    monkeypatch.setattr("app.services.audit.pruning.now_ms", lambda: 2**50)

    shown = [
        json.loads(command("audit", "prune", "--older-than-days", 30, "--json", *more).stdout)["removed"]
        for more in (["--dry-run"], [])
    ]

    assert shown[0] == shown[1] > 0


def test_recent_entries_are_kept(command: Command, store: Database, owner: Caller):
    """At least one day is always kept, and the number of days is required."""
    result = command("audit", "prune", "--older-than-days", 1)

    assert (result.exit_code, result.stdout) == (0, "Deleted 0 entries\n")
    assert command("audit", "prune", "--older-than-days", 0).exit_code == 2
    assert command("audit", "prune").exit_code == 2
