"""owned(): the only way to select a team's rows. A test on the syntax tree rejects any other."""

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
    """Select `columns` (by default all) of the rows of `table` that the caller's credential gives access to.

    A caller without a team gets no rows here; the server itself uses unscoped().
    """
    statement = select(*(columns or (table,))).where(team_column(table) == caller.team_id)
    if caller.project_id is not None and (project := _project_column(table)) is not None:
        statement = statement.where(project == caller.project_id)
    return statement


def owned_template(table: Selectable, *columns: ColumnElement[Any]) -> Select[Any]:
    """Return owned() for prepared statements: the caller comes later, by `parameters(caller)`."""
    statement = select(*(columns or (table,))).where(team_column(table) == bindparam("scope_team_id"))
    project = _project_column(table)
    return statement.where(true() if project is None else _matches_or_any(project))


def parameters(caller: Caller) -> dict[str, str | None]:
    """Return the parameters of an owned_template()."""
    return {"scope_team_id": caller.team_id, "scope_project_id": caller.project_id}


def team_column(table: Selectable) -> ColumnElement[Any]:
    """Return the column with the team of a row."""
    return table.c.id if table.name == "teams" else table.c.team_id


def _project_column(table: Selectable) -> ColumnElement[Any] | None:
    return table.c.id if table.name == "projects" else table.c.get("project_id")


def _matches_or_any(project: ColumnElement[Any]) -> ColumnElement[bool]:
    project_id = bindparam("scope_project_id", type_=project.type)
    return or_(project_id.is_(None), project == project_id)


def unscoped(table: Table, *columns: ColumnElement[Any]) -> Select[Any]:
    """Select rows of all teams: for the server itself (credentials, mirror, maintenance), never for a caller.

    The test that guards owned() lists the few modules that may use this.
    """
    return select(*(columns or (table,)))
