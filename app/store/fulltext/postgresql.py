"""PostgreSQL: a GIN index on tsvectors finds and counts rows within the projects in scope.

The index is queried through functions that run as the owner of the tables and check the team that the transaction acts
for, because under a row-level policy `@@` could not use it. `ts_rank` is not used, because it ignores term rarity.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from sqlalchemy import Connection, TextClause, text

from app.retrieval.text import index_words
from app.store.fulltext import NO_FILTERS, CorpusStatistics, MemoryFilters, Phrases, RankingRow, SearchScope, Seqs
from app.store.prepared import execute

_WORD_CHARACTERS: Final = 100
"""The index stores only the beginning of a longer word."""
_READ_CHARACTERS: Final = 2_000
"""The ranker reads this much of a memory; words after it count as occurring once."""
_BLANK: Final = "E' \\t\\n\\r'"
_PLACEHOLDER: Final = re.compile(r"%\((\w+)\)s")
_WITHIN: Final = "m.team_id = %(team_id)s AND m.project_id = ANY(%(project_ids)s)"

_LIST_OVERLAPS: Final = "cmem_list(m.{column}) && CAST(%({values})s AS text[])"
_IS_OR_BELOW: Final = """EXISTS (SELECT 1
  FROM unnest(cmem_list(m.{column})) AS item, unnest(CAST(%(files)s AS text[])) AS file
  WHERE item = file OR starts_with(item, file || '/'))"""


def _joined_lines(*columns: str) -> str:
    cut = (f"coalesce(substr({column}, 1, {_READ_CHARACTERS}), '')" for column in columns)
    return f"substr({' || chr(10) || '.join(cut)}, 1, {_READ_CHARACTERS})"


def _plain_text(column: str) -> str:
    """Return SQL for a JSON array as plain text: its escapes become spaces."""
    for escape in (r"\\", r"\n", r"\t", r"\r"):
        column = f"replace({column}, '{escape}', ' ')"
    return column


# lists are counted without their brackets, as in the project statistics
_ROWS: Final = f"""
    SELECT m.seq, m.id, m.created_at_epoch, m.superseded_by, m.project_id, m.server_session_id,
      coalesce(length(m.title), 0) + coalesce(length(m.subtitle), 0) + coalesce(length(m.text), 0)
        + coalesce(length(m.narrative), 0) + length(m.facts) - 2 + length(m.concepts) - 2,
      {_joined_lines("m.title", "m.subtitle", _plain_text("m.concepts"))},
      {_joined_lines("m.text", "m.narrative", _plain_text("m.facts"))},
      {_joined_lines("m.neighbour_text")},
      right(rtrim(coalesce(nullif(m.narrative, ''), nullif(m.text, ''), m.title, ''), {_BLANK}), 1)
    FROM memory_items AS m WHERE m.seq = ANY(%(seqs)s) AND {_WITHIN} ORDER BY m.seq"""


def statistics(connection: Connection, scope: SearchScope) -> CorpusStatistics:
    """Return the totals of the projects in scope."""
    rows = _run(
        connection,
        "SELECT s.project_id, s.memories, s.characters, s.changes,"
        " (SELECT max(m.created_at_epoch) FROM memory_items AS m"
        "  WHERE m.team_id = s.team_id AND m.project_id = s.project_id) AS newest_at_epoch"
        " FROM project_statistics AS s WHERE s.team_id = %(team_id)s AND s.project_id = ANY(%(project_ids)s)"
        " ORDER BY s.project_id",
        _scope(scope),
    )
    return CorpusStatistics(
        memories=sum(memories for _, memories, _, _, _ in rows),
        characters=sum(characters for _, _, characters, _, _ in rows),
        newest_at_epoch=max((newest or 0 for *_, newest in rows), default=0),
        changes=tuple((project_id, changes) for project_id, _, _, changes, _ in rows),
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
    column = "beside" if in_context else "own"
    values = {"project_ids": list(scope.project_ids), "query": _query(all_of), "at_most": limit}
    if not filters:
        return _find_in(connection, column, {**values, "newest_first": newest_first})
    condition, parameters = _conditions(scope, filters)
    inner = (
        f"SELECT DISTINCT m.seq FROM cmem_hits_in_{column}(%(project_ids)s, CAST(%(query)s AS tsquery)) AS f(seq)"
        f" JOIN memory_items AS m ON m.seq = f.seq WHERE {condition}"
        f" ORDER BY m.seq {'DESC' if newest_first else 'ASC'} LIMIT %(at_most)s"
    )
    return _seqs(connection, inner, {**values, **parameters})


def find_by_prefix(connection: Connection, scope: SearchScope, prefix: str, *, limit: int) -> Seqs:
    """Return at most `limit` memories, the last ones by `seq`, that contain a word with this prefix."""
    word = _phrase((prefix,))
    values = {"project_ids": list(scope.project_ids), "query": f"{word}:*" if word else "", "at_most": limit}
    return _find_in(connection, "own", {**values, "newest_first": True})


def count(connection: Connection, scope: SearchScope, term: Phrases, *, limit: int) -> tuple[int, int]:
    """Return the number of memories that contain a term, at most `limit`, and the last `seq` that was counted."""
    values = {"project_ids": list(scope.project_ids), "query": _query((term,)), "at_most": limit}
    sql = "SELECT * FROM cmem_count_in_own(%(project_ids)s, CAST(%(query)s AS tsquery), %(at_most)s)"
    ((number, last_seq),) = _run(connection, sql, values)
    return number, last_seq


def count_through(connection: Connection, scope: SearchScope, seq: int) -> int:
    """Return the number of memories in scope up to and including this `seq`."""
    sql = f"SELECT count(*) FROM memory_items AS m WHERE {_WITHIN} AND m.seq <= %(seq)s"
    ((number,),) = _run(connection, sql, {**_scope(scope), "seq": seq})
    return int(number)


def condition(scope: SearchScope, filters: MemoryFilters) -> TextClause:
    """Return the scope and the filters as a condition on `memory_items AS m`."""
    condition, values = _conditions(scope, filters)
    return text(_PLACEHOLDER.sub(r":\1", condition)).bindparams(**values)


def matching(connection: Connection, scope: SearchScope, seqs: Seqs, filters: MemoryFilters) -> Seqs:
    """Return those of the memories that match the filters."""
    condition, values = _conditions(scope, filters)
    inner = f"SELECT m.seq FROM memory_items AS m WHERE m.seq = ANY(%(seqs)s) AND {condition}"
    return _seqs(connection, inner, {**values, "seqs": seqs.tolist()})


def ranking_rows(connection: Connection, scope: SearchScope, seqs: Seqs) -> list[RankingRow]:
    """Return what a ranker needs to know about memories, in the order of `seq`; unknown ones are left out."""
    rows = _run(connection, _ROWS, {**_scope(scope), "seqs": seqs.tolist()})
    return [RankingRow(*row) for row in rows]


def seqs_by_id(
    connection: Connection, scope: SearchScope, memory_ids: Sequence[str], filters: MemoryFilters
) -> dict[str, int]:
    """Return the `seq` by id of those of the memories that are in scope and match the filters."""
    condition, values = _conditions(scope, filters)
    sql = f"SELECT m.id, m.seq FROM memory_items AS m WHERE m.id = ANY(%(ids)s) AND {condition}"
    return dict(_run(connection, sql, {**values, "ids": list(memory_ids)}))


def ordered_by_time(connection: Connection, scope: SearchScope, seqs: Sequence[int]) -> list[int]:
    """Return memories by creation time, oldest first; unknown ones are left out."""
    sql = f"SELECT m.seq FROM memory_items AS m WHERE m.seq = ANY(%(seqs)s) AND {_WITHIN}"
    in_order = f"{sql} ORDER BY m.created_at_epoch, m.seq"
    return [seq for (seq,) in _run(connection, in_order, {**_scope(scope), "seqs": list(seqs)})]


def _scope(scope: SearchScope) -> dict[str, Any]:
    return {"team_id": scope.team_id, "project_ids": list(scope.project_ids)}


def _conditions(scope: SearchScope, filters: MemoryFilters) -> tuple[str, dict[str, Any]]:
    """Return the scope and every filter as a condition on `memory_items AS m`, with its values."""
    values = _scope(scope)
    parts = [_WITHIN]
    for name, condition, value in _filter_conditions(filters):
        if value is not None and value != []:
            parts.append(condition)
            values[name] = value
    return " AND ".join(parts), values


def _filter_conditions(filters: MemoryFilters) -> list[tuple[str, str, Any]]:
    lists = ("files_read", "files_modified")
    condition = _LIST_OVERLAPS if filters.files_exact else _IS_OR_BELOW
    either_list = " OR ".join(condition.format(column=column, values="files") for column in lists)
    return [
        ("kinds", "m.kind = ANY(%(kinds)s)", list(filters.kinds)),
        ("types", "m.type = ANY(%(types)s)", list(filters.types)),
        ("concepts", _LIST_OVERLAPS.format(column="concepts", values="concepts"), list(filters.concepts)),
        ("files", f"({either_list})", [path if path == "/" else path.rstrip("/") for path in filters.files]),
        ("platform_source", "m.platform_source = %(platform_source)s", filters.platform_source),
        ("server_session_id", "m.server_session_id = %(server_session_id)s", filters.server_session_id),
        ("created_after", "m.created_at_epoch >= %(created_after)s", filters.created_after),
        ("created_before", "m.created_at_epoch < %(created_before)s", filters.created_before),
    ]


def _query(all_of: tuple[Phrases, ...]) -> str:
    """Return the text of a tsquery; empty, which matches nothing, when a term contains no word."""
    terms = [[quoted for phrase in phrases if (quoted := _phrase(phrase))] for phrases in all_of]
    return " & ".join(f"({' | '.join(term)})" for term in terms) if all(terms) else ""


def _phrase(words: tuple[str, ...]) -> str:
    indexed = [word[:_WORD_CHARACTERS] for each in words for word in index_words(each)]
    return " <-> ".join(f"'{word}'" for word in indexed)


def _find_in(connection: Connection, column: str, values: Mapping[str, Any]) -> Seqs:
    arguments = "%(project_ids)s, CAST(%(query)s AS tsquery), %(at_most)s, %(newest_first)s"
    return _keys(_run(connection, f"SELECT cmem_find_in_{column}({arguments})", values))


def _seqs(connection: Connection, inner: str, values: Mapping[str, Any]) -> Seqs:
    # one text with all keys costs less than as many rows
    return _keys(_run(connection, f"SELECT string_agg(seq::text, ',') FROM ({inner}) AS found", values))


def _keys(rows: list[tuple[Any, ...]]) -> Seqs:
    """Parse the keys out of the single text of a result."""
    ((joined,),) = rows
    return np.sort(np.fromstring(joined or "", dtype=np.int64, sep=","))


def _run(connection: Connection, sql: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return list(execute(connection, sql, values).fetchall())
