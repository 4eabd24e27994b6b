"""What is refused, whoever writes."""

from migrations.postgresql_0002.sql import changed, function


def _guard(name: str, when: str, table: str, condition: str, message: str) -> tuple[str, str]:
    """Return a trigger that refuses a change, with the class of error that a broken constraint has."""
    kept = "old" if when == "DELETE" else "new"
    refuse = f"RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = '{table}: {message}'"
    return (
        function(f"{name}()", "trigger", f"IF {condition} THEN {refuse}; END IF; RETURN {kept};"),
        f"CREATE TRIGGER {name} BEFORE {when} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()",
    )


_OUTSIDE_TEAM = (
    "new.project_id IS NOT NULL"
    " AND NOT EXISTS (SELECT 1 FROM projects WHERE id = new.project_id AND team_id = new.team_id)"
)
_OUTSIDE_SESSION = (
    "new.server_session_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM server_sessions"
    " WHERE id = new.server_session_id AND project_id = new.project_id AND team_id = new.team_id)"
)

GUARDS = (
    *(
        part
        for table in ("server_sessions", "agent_events", "memory_items", "memory_sources", "api_keys")
        for part in _guard(
            f"trg_{table}_project_team",
            "INSERT OR UPDATE OF project_id, team_id",
            table,
            _OUTSIDE_TEAM,
            "the project belongs to another team",
        )
    ),
    *(
        part
        for table in ("agent_events", "memory_items")
        for part in _guard(
            f"trg_{table}_session_project",
            "INSERT OR UPDATE OF server_session_id, project_id, team_id",
            table,
            _OUTSIDE_SESSION,
            "the session belongs to another project",
        )
    ),
    *_guard(
        "trg_server_sessions_project_update",
        "UPDATE OF project_id, team_id",
        "server_sessions",
        f"{changed(('project_id', 'team_id'))}"
        " AND (EXISTS (SELECT 1 FROM agent_events WHERE server_session_id = old.id)"
        " OR EXISTS (SELECT 1 FROM memory_items WHERE server_session_id = old.id))",
        "a session with events or memories cannot move",
    ),
    *_guard(
        "trg_server_sessions_id_update",
        "UPDATE OF id",
        "server_sessions",
        changed(("id",)),
        "a session keeps its id",
    ),
    *_guard(
        "trg_projects_team_update",
        "UPDATE OF id, team_id",
        "projects",
        changed(("id", "team_id")),
        "a project keeps its id and its team",
    ),
    *_guard(
        "trg_memory_items_place_update",
        "UPDATE OF seq, id, team_id, project_id",
        "memory_items",
        changed(("seq", "id", "team_id", "project_id")),
        "a memory keeps its id and its project",
    ),
    *_guard(
        "trg_memory_items_superseded_project",
        "INSERT OR UPDATE OF superseded_by, project_id",
        "memory_items",
        "new.superseded_by IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM memory_items WHERE id = new.superseded_by AND project_id = new.project_id)",
        "the superseding memory belongs to another project",
    ),
    *_guard(
        "trg_memory_sources_memory_project",
        "INSERT OR UPDATE OF memory_item_id, project_id",
        "memory_sources",
        "NOT EXISTS (SELECT 1 FROM memory_items WHERE id = new.memory_item_id AND project_id = new.project_id)",
        "the memory belongs to another project",
    ),
    *_guard(
        "trg_api_keys_member_team",
        "INSERT OR UPDATE OF user_id, team_id",
        "api_keys",
        "new.user_id IS NOT NULL AND NOT EXISTS"
        " (SELECT 1 FROM team_members WHERE user_id = new.user_id AND team_id = new.team_id)",
        "the user is not a member of the team",
    ),
    *_guard("trg_audit_log_update", "UPDATE", "audit_log", "true", "the log is append-only"),
    *_guard(
        "trg_audit_log_delete",
        "DELETE",
        "audit_log",
        "NOT EXISTS (SELECT 1 FROM audit_retention WHERE old.created_at_epoch < before_epoch)",
        "the log is append-only",
    ),
    function(
        "trg_audit_log_truncate()",
        "trigger",
        "RAISE EXCEPTION USING ERRCODE = 'check_violation', MESSAGE = 'audit_log: the log is append-only';",
    ),
    "CREATE TRIGGER trg_audit_log_truncate BEFORE TRUNCATE ON audit_log"
    " FOR EACH STATEMENT EXECUTE FUNCTION trg_audit_log_truncate()",
)
