"""Row-level security: only the rows of the team that a transaction acts for."""

from migrations.postgresql_0002.sql import SEES

TEAM_TABLES = (
    "team_members",
    "projects",
    "project_statistics",
    "api_keys",
    "server_sessions",
    "agent_events",
    "memory_items",
    "memory_sources",
    "audit_log",
    "operations",
    "usage_counters",
    "vector_outbox",
)


def _walls(table: str, team: str, *, also_for_the_owner: bool = True) -> tuple[str, ...]:
    """Return what lets a table show only the rows of the team that is set."""
    force = (f"ALTER TABLE {table} FORCE ROW LEVEL SECURITY",) if also_for_the_owner else ()
    return (
        f"ALTER TABLE {table} ENABLE ROW LEVEL SECURITY",
        f"CREATE POLICY tenant ON {table} USING ({SEES.format(team=team)})",
        *force,
    )


WALLS = (
    *_walls("teams", "id"),
    *(statement for table in TEAM_TABLES for statement in _walls(table, "team_id")),
    *_walls("memory_items_fts", "team_id", also_for_the_owner=False),
)
