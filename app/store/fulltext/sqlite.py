"""FTS5 asked for rows and counts inside the asked projects: the contract of this package on SQLite.

Its own scores are never asked for: their statistics are those of every team together. CROSS JOIN fixes the order of the
joins: left alone, SQLite would rather walk the whole project than look up a hundred keys.
"""

from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection, TextClause

from app.store import json_column
from app.store.fulltext import NO_FILTERS, Filters, Holdings, Phrases, Row, Scope, Seqs
from app.store.fulltext.filtering import clause, conditions, within

_OWN = "{title subtitle text narrative facts concepts search_text}"
_NEIGHBOURS = "{neighbour_text}"
_LAST_SEQ = 2**63 - 1
_BLANK = "' ' || char(9) || char(10) || char(13)"
_READ_CHARACTERS = 2_000
"""The ranker reads this much of a memory: words behind it count as found once."""


def _lines(*columns: str) -> str:
    cut = (f"coalesce(substr({column}, 1, {_READ_CHARACTERS}), '')" for column in columns)
    return f"substr({' || char(10) || '.join(cut)}, 1, {_READ_CHARACTERS})"


# lists count without their brackets, as the statistics of the project do
_ROWS = f"""
    SELECT m.seq, m.id, m.created_at_epoch, m.superseded_by, m.project_id, m.server_session_id,
      coalesce(length(m.title), 0) + coalesce(length(m.subtitle), 0) + coalesce(length(m.text), 0)
        + coalesce(length(m.narrative), 0) + length(m.facts) - 2 + length(m.concepts) - 2,
      {_lines("c.title", "c.subtitle", "c.concepts")}, {_lines("c.text", "c.narrative", "c.facts")},
      {_lines("c.neighbour_text")},
      substr(rtrim(coalesce(nullif(m.narrative, ''), nullif(m.text, ''), m.title, ''), {_BLANK}), -1)
    FROM json_each(?) AS asked CROSS JOIN memory_items AS m ON m.seq = asked.value
      CROSS JOIN memory_items_fts_content AS c ON c.seq = m.seq
    WHERE"""


def holdings(connection: Connection, scope: Scope) -> Holdings:
    """Return how much the asked projects hold."""
    rows = connection.exec_driver_sql(
        "SELECT s.project_id, s.memories, s.characters, s.changes,"
        " (SELECT max(m.created_at_epoch) FROM memory_items AS m"
        "  WHERE m.team_id = s.team_id AND m.project_id = s.project_id) AS newest_at_epoch"
        " FROM project_statistics AS s WHERE s.team_id = ? AND s.project_id IN (SELECT value FROM json_each(?))"
        " ORDER BY s.project_id",
        (scope.team_id, json_column.encode(scope.project_ids)),
    ).all()
    return Holdings(
        memories=sum(row.memories for row in rows),
        characters=sum(row.characters for row in rows),
        newest_at_epoch=max((row.newest_at_epoch or 0 for row in rows), default=0),
        changes=tuple((row.project_id, row.changes) for row in rows),
    )


def find(
    connection: Connection,
    scope: Scope,
    all_of: tuple[Phrases, ...],
    *,
    limit: int,
    neighbours: bool = False,
    filters: Filters = NO_FILTERS,
    newest_first: bool = False,
) -> Seqs:
    """Return at most `limit` memories that hold one phrase of each of `all_of`, the first or last by `seq`."""
    match = f"{_in_projects(scope)} AND {_NEIGHBOURS if neighbours else _OWN} : ({_conjunction(all_of)})"
    order = f"ORDER BY f.rowid {'DESC' if newest_first else 'ASC'} LIMIT ?"
    hits = "SELECT f.rowid AS seq FROM memory_items_fts AS f"
    if not filters:
        return _seqs(connection, f"{hits} WHERE f.memory_items_fts MATCH ? {order}", (match, limit))
    allowed, values = conditions(scope, filters)
    first, last = _bounds(connection, scope, filters)
    inner = (
        f"{hits} CROSS JOIN memory_items AS m ON m.seq = f.rowid"
        f" WHERE f.memory_items_fts MATCH ? AND f.rowid BETWEEN ? AND ? AND {allowed} {order}"
    )
    return _seqs(connection, inner, (match, first, last, *values, limit))


def beginning_with(connection: Connection, scope: Scope, beginning: str, *, limit: int) -> Seqs:
    """Return at most `limit` memories, the last by `seq`, that hold a word with this beginning."""
    match = f"{_in_projects(scope)} AND {_OWN} : ({_quoted((beginning,))} *)"
    inner = "SELECT rowid AS seq FROM memory_items_fts WHERE memory_items_fts MATCH ? ORDER BY rowid DESC LIMIT ?"
    return _seqs(connection, inner, (match, limit))


def count(connection: Connection, scope: Scope, term: Phrases, *, limit: int) -> tuple[int, int]:
    """Return how many memories hold a term, at most `limit`, and the last `seq` that was counted."""
    match = f"{_in_projects(scope)} AND {_OWN} : ({_conjunction((term,))})"
    counted = connection.exec_driver_sql(
        "SELECT count(*), coalesce(max(rowid), 0) FROM"
        " (SELECT rowid FROM memory_items_fts WHERE memory_items_fts MATCH ? ORDER BY rowid LIMIT ?)",
        (match, limit),
    )
    number, last_seq = counted.one()
    return number, last_seq


def count_up_to(connection: Connection, scope: Scope, seq: int) -> int:
    """Return how many memories of the asked projects have at most this `seq`."""
    sql = "SELECT count(*) FROM memory_items_fts WHERE memory_items_fts MATCH ? AND rowid <= ?"
    return int(connection.exec_driver_sql(sql, (_in_projects(scope), seq)).scalar_one())


def allowing(scope: Scope, filters: Filters) -> TextClause:
    """Return the scope and the filters as a condition on `memory_items AS m`."""
    return clause(scope, filters)


def allowed(connection: Connection, scope: Scope, seqs: Seqs, filters: Filters) -> Seqs:
    """Return those memories that the filters let through."""
    condition, values = conditions(scope, filters)
    inner = "SELECT m.seq FROM json_each(?) AS asked CROSS JOIN memory_items AS m ON m.seq = asked.value"
    return _seqs(connection, f"{inner} WHERE {condition}", (_json(seqs), *values))


def rows(connection: Connection, scope: Scope, seqs: Seqs) -> list[Row]:
    """Return what the ranker needs of memories, in the order of `seq`; unknown ones are left out."""
    in_scope, values = within(scope)
    found = connection.exec_driver_sql(f"{_ROWS} {in_scope} ORDER BY m.seq", (_json(seqs), *values)).all()
    return [Row(*row) for row in found]


def by_id(connection: Connection, scope: Scope, memory_ids: Sequence[str], filters: Filters) -> dict[str, int]:
    """Return the `seq` by id of those memories that are of these projects and pass the filters."""
    condition, values = conditions(scope, filters)
    found = connection.exec_driver_sql(
        "SELECT m.id, m.seq FROM json_each(?) AS asked CROSS JOIN memory_items AS m ON m.id = asked.value"
        f" WHERE {condition}",
        (json_column.encode(list(memory_ids)), *values),
    )
    return {row.id: row.seq for row in found}


def by_time(connection: Connection, scope: Scope, seqs: Sequence[int]) -> list[int]:
    """Return memories in the order of their times, oldest first; unknown ones are left out."""
    in_scope, values = within(scope)
    found = connection.exec_driver_sql(
        "SELECT m.seq FROM json_each(?) AS asked CROSS JOIN memory_items AS m ON m.seq = asked.value"
        f" WHERE {in_scope} ORDER BY m.created_at_epoch, m.seq",
        (json_column.encode(list(seqs)), *values),
    )
    return list(found.scalars())


def _bounds(connection: Connection, scope: Scope, filters: Filters) -> tuple[int, int]:
    """Return the first and last `seq` that time and session leave: indexes know them, and spare FTS5 the rest."""
    indexed = Filters(
        server_session_id=filters.server_session_id,
        created_after=filters.created_after,
        created_before=filters.created_before,
    )
    if not indexed:
        return 0, _LAST_SEQ
    condition, values = conditions(scope, indexed)
    sql = f"SELECT coalesce(min(m.seq), 0), coalesce(max(m.seq), 0) FROM memory_items AS m WHERE {condition}"
    first, last = connection.exec_driver_sql(sql, values).one()
    return first, last


def _in_projects(scope: Scope) -> str:
    # the index holds a project as one word: its id without hyphens, closed by a 0 so that stemming leaves it alone
    tokens = (_quoted((project_id.replace("-", "") + "0",)) for project_id in scope.project_ids)
    return f"project : ({' OR '.join(tokens)})"


def _conjunction(all_of: tuple[Phrases, ...]) -> str:
    return " AND ".join(f"({' OR '.join(map(_quoted, phrases))})" for phrases in all_of)


def _quoted(words: tuple[str, ...]) -> str:
    return '"' + " ".join(words).replace('"', '""') + '"'


def _json(seqs: Seqs) -> str:
    return json_column.encode(seqs.tolist())


def _seqs(connection: Connection, inner: str, values: tuple[str | int, ...]) -> Seqs:
    # one text of all keys costs a third of as many rows
    joined = connection.exec_driver_sql(f"SELECT group_concat(seq) FROM ({inner})", values).scalar_one()
    return np.sort(np.fromstring(joined or "", dtype=np.int64, sep=","))
