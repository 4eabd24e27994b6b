"""Lists of memories by filter and time, without a query."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, Subquery

from app.caller import Caller
from app.services.projects import projects
from app.services.shared import paging
from app.store.fulltext import MemoryFilters, SearchScope, dialects
from app.store.models import memory_items
from app.store.records import Memory, columns
from app.store.scope import owned

_M: Final = memory_items.alias("m")  # the alias that the filters' SQL uses
_COLUMNS: Final = columns(_M, Memory)


def list_page(
    connection: Connection,
    caller: Caller,
    requested: Sequence[str],
    filters: MemoryFilters,
    *,
    limit: int,
    cursor: str | None,
    oldest_first: bool = False,
) -> paging.Page[Memory]:
    """Return a page of the memories that match the filters, newest first by default.

    From the requested projects, or from all in the caller's scope. Raises Forbidden when one is outside of it.
    """
    project_ids = projects.in_scope(connection, caller, requested)
    full_text = dialects.of(connection.dialect.name)
    matches = full_text.condition(SearchScope(caller.team_id or "", project_ids), filters)
    statement = owned(_M, caller, *_COLUMNS).where(matches)
    if len(project_ids) == 1:  # lets SQLite use the index of the project instead of the team's
        statement = statement.where(_M.c.project_id == project_ids[0])
    return paging.page(
        connection,
        statement,
        Memory,
        (_M.c.created_at_epoch, _M.c.seq),
        limit=limit,
        cursor=cursor,
        bound_to=paging.binding(caller, ["memories", sorted(requested), filters, oldest_first]),
        oldest_first=oldest_first,
    )


def select_matching(
    connection: Connection, caller: Caller, requested: Sequence[str], filters: MemoryFilters
) -> Subquery:
    """Return a subquery of `seq`, project and session of the memories that match the filters. Raises Forbidden."""
    project_ids = projects.in_scope(connection, caller, requested)
    full_text = dialects.of(connection.dialect.name)
    matches = full_text.condition(SearchScope(caller.team_id or "", project_ids), filters)
    return owned(_M, caller, _M.c.seq, _M.c.project_id, _M.c.server_session_id).where(matches).subquery()
