"""Memories by filter and time, without a query: lists, and what is known of a file."""

from collections.abc import Sequence
from typing import Final

from sqlalchemy import Connection, Subquery

from app.caller import Caller
from app.services.projects import projects
from app.services.shared import paging
from app.store.fulltext import Filters, Scope, dialects
from app.store.models import memory_items
from app.store.records import Memory, columns
from app.store.scope import owned

_M: Final = memory_items.alias("m")  # the name that the filters' SQL uses
_COLUMNS: Final = columns(_M, Memory)


def page(
    connection: Connection,
    caller: Caller,
    named: Sequence[str],
    filters: Filters,
    *,
    limit: int,
    cursor: str | None,
    oldest_first: bool = False,
) -> paging.Page[Memory]:
    """Return the memories that the filters let through, newest first unless told otherwise.

    Of the named projects; of all that the caller reaches when none is named. Forbidden for one out of reach.
    """
    project_ids = projects.reach(connection, caller, named)
    full_text = dialects.of(connection.dialect.name)
    allowed = full_text.allowing(Scope(caller.team_id or "", project_ids), filters)
    statement = owned(_M, caller, *_COLUMNS).where(allowed)
    if len(project_ids) == 1:  # lets SQLite walk the index of one project instead of the team's
        statement = statement.where(_M.c.project_id == project_ids[0])
    return paging.page(
        connection,
        statement,
        Memory,
        (_M.c.created_at_epoch, _M.c.seq),
        limit=limit,
        cursor=cursor,
        bound_to=paging.binding(caller, ["memories", sorted(named), filters, oldest_first]),
        oldest_first=oldest_first,
    )


def matching(connection: Connection, caller: Caller, named: Sequence[str], filters: Filters) -> Subquery:
    """Return key, project and session of the memories that the filters let through, to be selected from."""
    project_ids = projects.reach(connection, caller, named)
    full_text = dialects.of(connection.dialect.name)
    allowed = full_text.allowing(Scope(caller.team_id or "", project_ids), filters)
    return owned(_M, caller, _M.c.seq, _M.c.project_id, _M.c.server_session_id).where(allowed).subquery()
