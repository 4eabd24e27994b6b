"""A database with rows of two teams in every table, and plain connections to it as either role."""

import subprocess
from dataclasses import dataclass
from typing import Any

import psycopg
from psycopg import sql
from psycopg.errors import CheckViolation, InsufficientPrivilege
from psycopg.rows import dict_row

from app.services.operations import jobs
from app.store.models import memory_sources, usage_counters
from app.store.scope import TENANT_TABLES
from tests.conftest import Server, Tenant
from tests.postgresql import SERVER, Cluster

PROTECTED = sorted({*TENANT_TABLES, "vector_outbox", "memory_items_fts"})
UNPROTECTED = {
    "alembic_version",
    "audit_retention",
    "copied_from",
    "idempotency_records",
    "installed_objects",
    "request_counters",
}
"""Tables without a team's rows: ids and counts of keys, which are looked up before the team is known."""
REJECTED = (InsufficientPrivilege, CheckViolation)
"""The error of a policy, or of a trigger that looks for a row which a policy hides."""


@dataclass(frozen=True)
class TwoTeamDatabase:
    """A database with two teams, and connections to it."""

    cluster: Cluster
    name: str
    a: Tenant
    b: Tenant

    def connect(self, role: str = SERVER, team: str | None = None) -> psycopg.Connection[Any]:
        """Return a connection that acts for a team, or one that has not set a team."""
        connection = self.cluster.connect(role, self.name)
        connection.row_factory = dict_row  # type: ignore[assignment]
        if team is not None:
            connection.execute("SELECT set_config('cmem.team_id', %s, false)", [team])
        return connection

    def psql(self, script: str) -> list[str]:
        """Run a script with psql as the server's role; return the lines that it prints."""
        command = [self.cluster.programs / "psql", "-XqtA", "-v", "ON_ERROR_STOP=1", "-f", "-"]
        address = ["-h", str(self.cluster.folder), "-U", SERVER, self.name]
        done = subprocess.run(
            [*command, *address], input=script, capture_output=True, text=True, timeout=30, check=True
        )
        return done.stdout.split()


def team_column(table: str) -> str:
    return "id" if table == "teams" else "team_id"


def run(connection: psycopg.Connection[Any], statement: str, *values: object, **names: str) -> psycopg.Cursor[Any]:
    """Execute a statement with the names of tables and columns filled in."""
    composed = sql.SQL(statement).format(**{name: sql.Identifier(text) for name, text in names.items()})  # type: ignore[arg-type]
    return connection.execute(composed, values)


def teams_in(connection: psycopg.Connection[Any], table: str) -> set[str | None]:
    """Return the teams whose rows of a table are visible."""
    rows = run(connection, "SELECT DISTINCT {team} AS team FROM {table}", table=table, team=team_column(table))
    return {row["team"] for row in rows}


def fill(server: Server, tenant: Tenant, word: str) -> None:
    """Add a row to every table of a team."""
    session = tenant.http.post("/v1/sessions/start", json={"projectId": tenant.project_id}).json()["session"]["id"]
    event = {"projectId": tenant.project_id, "eventType": "e", "sourceType": "api", "occurredAtEpoch": 1, "payload": {}}
    memory = {"content": f"{word} content", "serverSessionId": session}
    replies = [
        tenant.http.post("/v1/events", json={**event, "serverSessionId": session}),
        tenant.http.post(f"/v1/teams/{tenant.team_id}/members", json={"userId": f"{word}@team", "role": "member"}),
        tenant.post_memory(**memory),
    ]
    assert [reply.status_code for reply in replies] == [201, 201, 201], [reply.text for reply in replies]
    memory_id = replies[-1].json()["memory"]["id"]
    source = {"source_type": "import", "origin": "o", "legacy_table": "t", "legacy_id": "1", "metadata": {}}
    owner = {"team_id": tenant.team_id, "project_id": tenant.project_id}
    with server.database.write() as connection:
        jobs.create(connection, tenant.caller, "none", project_id=tenant.project_id, arguments={})
        row = {"id": f"source {word}", "memory_item_id": memory_id, "created_at_epoch": 1, **source, **owner}
        connection.execute(memory_sources.insert().values(row))
        used = {"key_id": word, "month": "2000-01", "kind": "read", "team_id": tenant.team_id, "count": 1}
        connection.execute(usage_counters.insert().values(used))
