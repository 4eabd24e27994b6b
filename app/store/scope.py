"""owned(): the one way to select rows of a team. A test on the syntax tree refuses any other."""

from typing import Any, Final

from sqlalchemy import ColumnElement, Select, Table, bindparam, or_, select, true
from sqlalchemy.sql.selectable import NamedFromClause

from app.caller import Caller

TENANT_TABLES: Final = frozenset(
    {
        "teams",
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
    }
)


Selectable = Table | NamedFromClause


def owned(table: Selectable, caller: Caller, *columns: ColumnElement[Any]) -> Select[Any]:
    """Select `columns` (all of them by default) of those rows of `table` that the caller's credential reaches.

    A caller without a team reaches nothing here: what the server itself may see is asked for by other means.
    """
    statement = select(*(columns or (table,))).where(team_column(table) == caller.team_id)
    if caller.project_id is not None and (project := _project_column(table)) is not None:
        statement = statement.where(project == caller.project_id)
    return statement


def owned_template(table: Selectable, *columns: ColumnElement[Any]) -> Select[Any]:
    """Return owned() with the caller left open, for prepared statements; `parameters(caller)` fills it in."""
    statement = select(*(columns or (table,))).where(team_column(table) == bindparam("scope_team_id"))
    project = _project_column(table)
    within = true() if project is None else _or_any(project)
    return statement.where(within)


def parameters(caller: Caller) -> dict[str, str | None]:
    """Return the values that an owned_template() leaves open."""
    return {"scope_team_id": caller.team_id, "scope_project_id": caller.project_id}


def team_column(table: Selectable) -> ColumnElement[Any]:
    """Return the column that says whose a row is."""
    return table.c.id if table.name == "teams" else table.c.team_id


def _project_column(table: Selectable) -> ColumnElement[Any] | None:
    return table.c.id if table.name == "projects" else table.c.get("project_id")


def _or_any(project: ColumnElement[Any]) -> ColumnElement[bool]:
    wanted = bindparam("scope_project_id", type_=project.type)
    return or_(wanted.is_(None), project == wanted)


def every(table: Table, *columns: ColumnElement[Any]) -> Select[Any]:
    """Select rows of all teams: for the server itself (credentials, mirror, maintenance), never for a caller's data.

    The test that guards owned() lists the few modules that may use this.
    """
    return select(*(columns or (table,)))
