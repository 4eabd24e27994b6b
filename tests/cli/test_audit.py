"""`audit prune` as a person and as a script use it."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from app.caller import Caller
from app.services.projects import projects
from app.store.database import Database

Command = Callable[..., Result]


def test_it_counts_then_removes_then_has_nothing_to_do(
    command: Command, store: Database, owner: Caller, monkeypatch: pytest.MonkeyPatch
):
    """The rehearsal is exact."""
    with store.write() as connection:
        projects.create(connection, owner, name="p")
    monkeypatch.setattr("app.services.audit.pruning.now_ms", lambda: 2**50)

    shown = [
        json.loads(command("audit", "prune", "--older-than-days", 30, "--json", *more).stdout)["removed"]
        for more in (["--dry-run"], [])
    ]

    assert shown[0] == shown[1] > 0


def test_what_is_young_stays(command: Command, store: Database, owner: Caller):
    """Also the very last day cannot be taken away."""
    result = command("audit", "prune", "--older-than-days", 1)

    assert (result.exit_code, result.stdout) == (0, "removed 0 entries\n")
    assert command("audit", "prune", "--older-than-days", 0).exit_code == 2
    assert command("audit", "prune").exit_code == 2
