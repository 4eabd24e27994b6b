"""Filters as SQL conditions on `memory_items AS m`, for statements that run through the driver."""

from sqlalchemy import TextClause, text

from app.store import json_column
from app.store.fulltext import Filters, Scope

Conditions = tuple[str, tuple[str | int, ...]]

_HOLDS = """EXISTS (SELECT 1
  FROM json_each(CASE WHEN json_valid(m.{column}) THEN m.{column} ELSE '[]' END) AS item
  WHERE {test})"""
_IS_LISTED = "item.value IN (SELECT value FROM json_each(?))"
_IS_OR_BELOW = """EXISTS (SELECT 1 FROM json_each(?) AS asked
    WHERE item.value = asked.value OR substr(item.value, 1, length(asked.value) + 1) = asked.value || '/')"""


def within(scope: Scope) -> Conditions:
    """Return the condition that a memory belongs to the asked projects of the team."""
    return "m.team_id = ? AND m.project_id IN (SELECT value FROM json_each(?))", (
        scope.team_id,
        json_column.encode(scope.project_ids),
    )


def conditions(scope: Scope, filters: Filters) -> Conditions:
    """Return `within(scope)` and every filter, joined by AND, with the values in the order of their places."""
    in_scope, values = within(scope)
    parts = [in_scope]
    for condition, value in _asked(filters):
        parts.append(condition)
        values += (value,) * condition.count("?")
    return " AND ".join(parts), values


def clause(scope: Scope, filters: Filters) -> TextClause:
    """Return `conditions()` with names for its places, which Core can compose."""
    sql, values = conditions(scope, filters)
    first, *rest = sql.split("?")
    named = first + "".join(f":filter_{place}{part}" for place, part in enumerate(rest))
    return text(named).bindparams(**{f"filter_{place}": value for place, value in enumerate(values)})


def _asked(filters: Filters) -> list[tuple[str, str | int]]:
    paths = json_column.encode([path if path == "/" else path.rstrip("/") for path in filters.files])
    test = _IS_LISTED if filters.files_exact else _IS_OR_BELOW
    either_list = " OR ".join(_HOLDS.format(column=column, test=test) for column in ("files_read", "files_modified"))
    listed = "(SELECT value FROM json_each(?))"
    asked: list[tuple[bool, str, str | int | None]] = [
        (bool(filters.kinds), f"m.kind IN {listed}", json_column.encode(filters.kinds)),
        (bool(filters.types), f"m.type IN {listed}", json_column.encode(filters.types)),
        (
            bool(filters.concepts),
            _HOLDS.format(column="concepts", test=_IS_LISTED),
            json_column.encode(filters.concepts),
        ),
        (bool(filters.files), f"({either_list})", paths),
        (filters.platform_source is not None, "m.platform_source = ?", filters.platform_source),
        (filters.server_session_id is not None, "m.server_session_id = ?", filters.server_session_id),
        (filters.created_after is not None, "m.created_at_epoch >= ?", filters.created_after),
        (filters.created_before is not None, "m.created_at_epoch < ?", filters.created_before),
    ]
    return [(condition, value) for wanted, condition, value in asked if wanted and value is not None]
