"""Full-text search uses its index although a policy alone would prevent that."""

from typing import Any

import psycopg

from app.caller import server_owner
from app.services.memories import memories
from app.services.memories.memories import NewMemory
from tests.conftest import Server
from tests.postgresql import OWNER
from tests.store.row_level_security.two_teams import TwoTeamDatabase


def plan(connection: psycopg.Connection[Any], statement: str, project_id: str) -> list[str]:
    """Return the query plan of a search in a project, made the way cmem_hits_in_own() makes its own."""
    connection.execute("SET enable_seqscan = off")
    rows = connection.execute(f"EXPLAIN {statement}".encode(), [project_id])
    return [row["QUERY PLAN"].strip() for row in rows]


def test_search_uses_the_index_where_a_policy_alone_would_prevent_it(two_teams: TwoTeamDatabase, server: Server):
    """`@@` is not leakproof, so under a policy it is evaluated for every row; cmem_hits_in_own() avoids that."""
    caller = server_owner().within(two_teams.a.team_id)
    project_id = two_teams.a.project_id
    with server.database.write() as connection:
        new = [
            NewMemory(project_id=project_id, kind="manual", type="manual", narrative=f"common word{number}")
            for number in range(3_000)
        ]
        memories.add_batch(connection, caller, new)
    query = "SELECT seq FROM memory_items_fts WHERE project_id = %s AND own @@ '''word77'''::tsquery"
    with two_teams.connect(OWNER, two_teams.a.team_id) as owner:
        owner.execute("ANALYZE memory_items_fts")
        by_index = plan(owner, query, project_id)
    with two_teams.connect(team=two_teams.a.team_id) as connection, connection.transaction():
        by_policy = plan(connection, query, project_id)
        scans = "SELECT pg_stat_get_xact_numscans('ix_memory_items_fts_own'::regclass) AS scans"
        before = connection.execute(scans).fetchone()["scans"]
        hits = connection.execute(
            "SELECT * FROM cmem_hits_in_own(%s, '''word77'''::tsquery)", [[project_id]]
        ).fetchall()
        after = connection.execute(scans).fetchone()["scans"]
    assert any(line.startswith("Index Cond") and "@@" in line for line in by_index)
    assert any(line.startswith("Filter") and "@@" in line for line in by_policy)
    assert not any(line.startswith("Index Cond") and "@@" in line for line in by_policy)
    assert (len(hits), after - before) == (1, 1)
