"""Filters as SQL conditions on `memory_items AS m`, for SQLite statements that run through the driver."""

from sqlalchemy import TextClause, text

from app.store import json_column
from app.store.fulltext import MemoryFilters, SearchScope

Conditions = tuple[str, tuple[str | int, ...]]

_LIST_HAS = """EXISTS (SELECT 1
  FROM json_each(CASE WHEN json_valid(m.{column}) THEN m.{column} ELSE '[]' END) AS item
  WHERE {test})"""
_IS_LISTED = "item.value IN (SELECT value FROM json_each(?))"
_IS_OR_BELOW = """EXISTS (SELECT 1 FROM json_each(?) AS file
    WHERE item.value = file.value OR substr(item.value, 1, length(file.value) + 1) = file.value || '/')"""


def within(scope: SearchScope) -> Conditions:
    """Return the condition that a memory is in scope."""
    return "m.team_id = ? AND m.project_id IN (SELECT value FROM json_each(?))", (
        scope.team_id,
        json_column.encode(scope.project_ids),
    )


def conditions(scope: SearchScope, filters: MemoryFilters) -> Conditions:
    """Return `within(scope)` and all filters, joined by AND, with the values in the order of their placeholders."""
    in_scope, values = within(scope)
    parts = [in_scope]
    for condition, value in _active(filters):
        parts.append(condition)
        values += (value,) * condition.count("?")
    return " AND ".join(parts), values


def clause(scope: SearchScope, filters: MemoryFilters) -> TextClause:
    """Return `conditions()` with named placeholders, for use in SQLAlchemy Core."""
    sql, values = conditions(scope, filters)
    first, *rest = sql.split("?")
    named = first + "".join(f":filter_{index}{part}" for index, part in enumerate(rest))
    return text(named).bindparams(**{f"filter_{index}": value for index, value in enumerate(values)})


def _active(filters: MemoryFilters) -> list[tuple[str, str | int]]:
    """Return the condition and the value of each filter that is set."""
    paths = json_column.encode([path if path == "/" else path.rstrip("/") for path in filters.files])
    test = _IS_LISTED if filters.files_exact else _IS_OR_BELOW
    either_list = " OR ".join(_LIST_HAS.format(column=column, test=test) for column in ("files_read", "files_modified"))
    listed = "(SELECT value FROM json_each(?))"
    candidates: list[tuple[bool, str, str | int | None]] = [
        (bool(filters.kinds), f"m.kind IN {listed}", json_column.encode(filters.kinds)),
        (bool(filters.types), f"m.type IN {listed}", json_column.encode(filters.types)),
        (
            bool(filters.concepts),
            _LIST_HAS.format(column="concepts", test=_IS_LISTED),
            json_column.encode(filters.concepts),
        ),
        (bool(filters.files), f"({either_list})", paths),
        (filters.platform_source is not None, "m.platform_source = ?", filters.platform_source),
        (filters.server_session_id is not None, "m.server_session_id = ?", filters.server_session_id),
        (filters.created_after is not None, "m.created_at_epoch >= ?", filters.created_after),
        (filters.created_before is not None, "m.created_at_epoch < ?", filters.created_before),
    ]
    return [(condition, value) for is_set, condition, value in candidates if is_set and value is not None]
