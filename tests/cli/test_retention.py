"""`retention run` as a person and as a script use it."""

import json
from collections.abc import Callable

from click.testing import Result

from app.caller import Caller
from app.services.deletion import retention
from app.services.deletion.retention_rules import Rule
from app.services.memories import memories
from app.services.projects import projects
from app.store.database import Database


def test_a_dry_run_and_the_run_report_the_same_counts(command: Callable[..., Result], store: Database, owner: Caller):
    """Per project and in total; the second run finds nothing."""
    with store.write() as connection:
        project_id = projects.create(connection, owner, name="p").id
        for number in range(3):
            new = memories.NewMemory(
                project_id=project_id, kind="manual", type="manual", text=f"old {number}", created_at_epoch=number
            )
            memories.add(connection, owner, new)
        retention.put(connection, owner, project_id, [Rule(max_age_days=30)])
    counts = {"removed": 3, "projects": [{"projectId": project_id, "removed": 3, "byRule": [3]}]}

    assert json.loads(command("retention", "run", "--dry-run", "--json").stdout) == {"dryRun": True, **counts}
    assert json.loads(command("retention", "run", "--team", "a", "--json").stdout) == {"dryRun": False, **counts}
    assert command("retention", "run").output.splitlines()[-1] == "Deleted 0 memories"
