"""`erase` as a person and as a script use it."""

import json
from collections.abc import Callable

import pytest
from click.testing import Result

from app.caller import Caller
from app.services.memories import memories
from app.services.projects import projects
from app.store.database import Database


@pytest.fixture
def filled(store: Database, owner: Caller) -> None:
    """Memories of two people, distinguished by their metadata."""
    with store.write() as connection:
        project_id = projects.create(connection, owner, name="p").id
        for person in ("ann", "ann", "bob"):
            fields = {"text": f"of {person}", "metadata": {"person": person, "team": "x=y"}}
            new = memories.NewMemory(project_id=project_id, kind="manual", type="manual", **fields)
            memories.add(connection, owner, new)


def test_a_dry_run_counts_what_the_run_then_erases(command: Callable[..., Result], filled: None):
    """Only rows that match all pairs; a value may contain an equals sign."""
    erase = ("erase", "--team", "a", "--metadata", "person=ann", "--metadata", "team=x=y", "--json")
    receipts = [json.loads(command(*erase, *more).stdout) for more in (("--dry-run",), (), ())]

    assert [(receipt["dryRun"], receipt["memories"]) for receipt in receipts] == [(True, 1), (False, 1), (False, 0)]
    assert command("erase", "--team", "a", "--metadata", "person=bob").output.split().count("memories") == 1


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [(("--metadata", "person"), "must be KEY=VALUE"), (("--metadata", "=ann"), "must be KEY=VALUE"), ((), "Error: ")],
)
def test_a_malformed_selector_erases_nothing(
    command: Callable[..., Result], filled: None, arguments: tuple[str, ...], complaint: str
):
    """And neither does an empty one, which would match every row."""
    refused = command("erase", "--team", "a", *arguments)
    left = json.loads(command("erase", "--team", "a", "--metadata", "team=x=y", "--dry-run", "--json").stdout)

    assert refused.exit_code != 0
    assert complaint in refused.output
    assert left["memories"] == 2
