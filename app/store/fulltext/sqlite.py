"""SQLite: FTS5 finds and counts rows within the projects in scope.

FTS5's own scores are not used, because their statistics cover all teams together. CROSS JOIN fixes the join order:
otherwise SQLite would rather scan the whole project than look up a hundred keys.
"""

from collections.abc import Sequence

import numpy as np
from sqlalchemy import Connection, TextClause

from app.store import json_column
from app.store.fulltext import NO_FILTERS, CorpusStatistics, MemoryFilters, Phrases, RankingRow, SearchScope, Seqs
from app.store.fulltext.filtering import clause, conditions, within

_OWN = "{title subtitle text narrative facts concepts search_text}"
_CONTEXT = "{neighbour_text}"
_LAST_SEQ = 2**63 - 1
_BLANK = "' ' || char(9) || char(10) || char(13)"
_READ_CHARACTERS = 2_000
"""The ranker reads this much of a memory; words after it count as occurring once."""


def _joined_lines(*columns: str) -> str:
    cut = (f"coalesce(substr({column}, 1, {_READ_CHARACTERS}), '')" for column in columns)
    return f"substr({' || char(10) || '.join(cut)}, 1, {_READ_CHARACTERS})"


# lists are counted without their brackets, as in the project statistics
_ROWS = f"""
    SELECT m.seq, m.id, m.created_at_epoch, m.superseded_by, m.project_id, m.server_session_id,
      coalesce(length(m.title), 0) + coalesce(length(m.subtitle), 0) + coalesce(length(m.text), 0)
        + coalesce(length(m.narrative), 0) + length(m.facts) - 2 + length(m.concepts) - 2,
      {_joined_lines("c.title", "c.subtitle", "c.concepts")}, {_joined_lines("c.text", "c.narrative", "c.facts")},
      {_joined_lines("c.neighbour_text")},
      substr(rtrim(coalesce(nullif(m.narrative, ''), nullif(m.text, ''), m.title, ''), {_BLANK}), -1)
    FROM json_each(?) AS given CROSS JOIN memory_items AS m ON m.seq = given.value
      CROSS JOIN memory_items_fts_content AS c ON c.seq = m.seq
    WHERE"""


def statistics(connection: Connection, scope: SearchScope) -> CorpusStatistics:
    """Return the totals of the projects in scope."""
    rows = connection.exec_driver_sql(
        "SELECT s.project_id, s.memories, s.characters, s.changes,"
        " (SELECT max(m.created_at_epoch) FROM memory_items AS m"
        "  WHERE m.team_id = s.team_id AND m.project_id = s.project_id) AS newest_at_epoch"
        " FROM project_statistics AS s WHERE s.team_id = ? AND s.project_id IN (SELECT value FROM json_each(?))"
        " ORDER BY s.project_id",
        (scope.team_id, json_column.encode(scope.project_ids)),
    ).all()
    return CorpusStatistics(
        memories=sum(row.memories for row in rows),
        characters=sum(row.characters for row in rows),
        newest_at_epoch=max((row.newest_at_epoch or 0 for row in rows), default=0),
        changes=tuple((row.project_id, row.changes) for row in rows),
    )


def find(
    connection: Connection,
    scope: SearchScope,
    all_of: tuple[Phrases, ...],
    *,
    limit: int,
    in_context: bool = False,
    filters: MemoryFilters = NO_FILTERS,
    newest_first: bool = False,
) -> Seqs:
    """Return at most `limit` memories that contain a phrase of each of `all_of`, the first or last ones by `seq`."""
    match = f"{_in_projects(scope)} AND {_CONTEXT if in_context else _OWN} : ({_all_of(all_of)})"
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


def find_by_prefix(connection: Connection, scope: SearchScope, prefix: str, *, limit: int) -> Seqs:
    """Return at most `limit` memories, the last ones by `seq`, that contain a word with this prefix."""
    match = f"{_in_projects(scope)} AND {_OWN} : ({_quoted((prefix,))} *)"
    inner = "SELECT rowid AS seq FROM memory_items_fts WHERE memory_items_fts MATCH ? ORDER BY rowid DESC LIMIT ?"
    return _seqs(connection, inner, (match, limit))


def count(connection: Connection, scope: SearchScope, term: Phrases, *, limit: int) -> tuple[int, int]:
    """Return the number of memories that contain a term, at most `limit`, and the last `seq` that was counted."""
    match = f"{_in_projects(scope)} AND {_OWN} : ({_all_of((term,))})"
    counted = connection.exec_driver_sql(
        "SELECT count(*), coalesce(max(rowid), 0) FROM"
        " (SELECT rowid FROM memory_items_fts WHERE memory_items_fts MATCH ? ORDER BY rowid LIMIT ?)",
        (match, limit),
    )
    number, last_seq = counted.one()
    return number, last_seq


def count_through(connection: Connection, scope: SearchScope, seq: int) -> int:
    """Return the number of memories in scope up to and including this `seq`."""
    sql = "SELECT count(*) FROM memory_items_fts WHERE memory_items_fts MATCH ? AND rowid <= ?"
    return int(connection.exec_driver_sql(sql, (_in_projects(scope), seq)).scalar_one())


def condition(scope: SearchScope, filters: MemoryFilters) -> TextClause:
    """Return the scope and the filters as a condition on `memory_items AS m`."""
    return clause(scope, filters)


def matching(connection: Connection, scope: SearchScope, seqs: Seqs, filters: MemoryFilters) -> Seqs:
    """Return those of the memories that match the filters."""
    condition, values = conditions(scope, filters)
    inner = "SELECT m.seq FROM json_each(?) AS given CROSS JOIN memory_items AS m ON m.seq = given.value"
    return _seqs(connection, f"{inner} WHERE {condition}", (_json(seqs), *values))


def ranking_rows(connection: Connection, scope: SearchScope, seqs: Seqs) -> list[RankingRow]:
    """Return what a ranker needs to know about memories, in the order of `seq`; unknown ones are left out."""
    in_scope, values = within(scope)
    result = connection.exec_driver_sql(f"{_ROWS} {in_scope} ORDER BY m.seq", (_json(seqs), *values)).all()
    return [RankingRow(*row) for row in result]


def seqs_by_id(
    connection: Connection, scope: SearchScope, memory_ids: Sequence[str], filters: MemoryFilters
) -> dict[str, int]:
    """Return the `seq` by id of those of the memories that are in scope and match the filters."""
    condition, values = conditions(scope, filters)
    result = connection.exec_driver_sql(
        "SELECT m.id, m.seq FROM json_each(?) AS given CROSS JOIN memory_items AS m ON m.id = given.value"
        f" WHERE {condition}",
        (json_column.encode(list(memory_ids)), *values),
    )
    return {row.id: row.seq for row in result}


def ordered_by_time(connection: Connection, scope: SearchScope, seqs: Sequence[int]) -> list[int]:
    """Return memories by creation time, oldest first; unknown ones are left out."""
    in_scope, values = within(scope)
    result = connection.exec_driver_sql(
        "SELECT m.seq FROM json_each(?) AS given CROSS JOIN memory_items AS m ON m.seq = given.value"
        f" WHERE {in_scope} ORDER BY m.created_at_epoch, m.seq",
        (json_column.encode(list(seqs)), *values),
    )
    return list(result.scalars())


def _bounds(connection: Connection, scope: SearchScope, filters: MemoryFilters) -> tuple[int, int]:
    """Return the range of `seq` that match the time and session filters: indexes find it, and FTS5 skips the rest."""
    indexed = MemoryFilters(
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


def _in_projects(scope: SearchScope) -> str:
    # the index has the project as one word: its id without hyphens, and a final 0 that prevents stemming
    tokens = (_quoted((project_id.replace("-", "") + "0",)) for project_id in scope.project_ids)
    return f"project : ({' OR '.join(tokens)})"


def _all_of(all_of: tuple[Phrases, ...]) -> str:
    return " AND ".join(f"({' OR '.join(map(_quoted, phrases))})" for phrases in all_of)


def _quoted(words: tuple[str, ...]) -> str:
    return '"' + " ".join(words).replace('"', '""') + '"'


def _json(seqs: Seqs) -> str:
    return json_column.encode(seqs.tolist())


def _seqs(connection: Connection, inner: str, values: tuple[str | int, ...]) -> Seqs:
    # one text with all keys costs a third of as many rows
    joined = connection.exec_driver_sql(f"SELECT group_concat(seq) FROM ({inner})", values).scalar_one()
    return np.sort(np.fromstring(joined or "", dtype=np.int64, sep=","))
