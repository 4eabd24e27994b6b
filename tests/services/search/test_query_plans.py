"""Query plans of PostgreSQL for a table without statistics yet, because it was filled a moment ago."""

import pytest

from app.services.memories import memories
from app.services.memories.memories import NewMemory
from app.services.projects import events
from app.services.transfer import importing
from app.store.prepared import PreparedStatement
from app.store.scope import parameters
from tests.services.conftest import TeamProject

pytestmark = pytest.mark.postgresql

BY_CONTENT = "uq_memory_items_project_id_dedup_scope_kind_content_hash"
BY_HASH = "uq_agent_events_project_id_event_hash"
MISSING = {"dedup_scope": "", "kind": "manual", "content_hash": "of no memory", "event_hash": "of no event"}


@pytest.mark.parametrize(
    ("statement", "index"),
    [(memories._SAME, BY_CONTENT), (events._BY_HASH, BY_HASH), (importing._SAME_EVENT, BY_HASH)],
    ids=["a memory by its content", "an event by its hash", "an event that comes in again"],
)
def test_duplicates_are_looked_up_in_their_unique_index(
    team_project: TeamProject, statement: PreparedStatement[object], index: str
):
    """Otherwise each row of a first import is compared with all the rows before it."""
    with team_project.database.write() as connection:
        for number in range(300):
            new = NewMemory(project_id=team_project.project_id, kind="manual", type="manual", title=f"title {number}")
            memories.insert_once(connection, team_project.caller, new)
    with team_project.database.read() as connection:
        connection.exec_driver_sql("SET LOCAL enable_seqscan = off")
        compiled = statement._for(connection)
        values = compiled.bind({**parameters(team_project.caller), "project_id": team_project.project_id, **MISSING})
        plan = [row[0] for row in connection.exec_driver_sql(f"EXPLAIN {compiled.sql}", values)]
    assert f"using {index} " in plan[0]
