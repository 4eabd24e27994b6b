"""GIN over tsvector asked for rows and counts inside the asked projects: the contract of this package on PostgreSQL.

The index is asked through a function that runs as the owner of the tables and checks the team that the transaction acts
for: under a row-level policy `@@` could not use it. Nothing is scored here: `ts_rank` knows no rarity.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from sqlalchemy import Connection, TextClause, text

from app.retrieval.text import index_words
from app.store.fulltext import NO_FILTERS, Filters, Holdings, Phrases, Row, Scope, Seqs
from app.store.prepared import execute

_WORD_CHARACTERS: Final = 100
"""A longer word is known to the index by its beginning."""
_READ_CHARACTERS: Final = 2_000
"""The ranker reads this much of a memory: words behind it count as found once."""
_BLANK: Final = "E' \\t\\n\\r'"
_PLACE: Final = re.compile(r"%\((\w+)\)s")
_WITHIN: Final = "m.team_id = %(team_id)s AND m.project_id = ANY(%(project_ids)s)"

_HOLDS: Final = "cmem_list(m.{column}) && CAST(%({asked})s AS text[])"
_IS_OR_BELOW: Final = """EXISTS (SELECT 1
  FROM unnest(cmem_list(m.{column})) AS item, unnest(CAST(%(files)s AS text[])) AS asked
  WHERE item = asked OR starts_with(item, asked || '/'))"""


def _lines(*columns: str) -> str:
    cut = (f"coalesce(substr({column}, 1, {_READ_CHARACTERS}), '')" for column in columns)
    return f"substr({' || chr(10) || '.join(cut)}, 1, {_READ_CHARACTERS})"


def _plain(column: str) -> str:
    """Return SQL for the words of a JSON array: its escapes become blanks."""
    for escape in (r"\\", r"\n", r"\t", r"\r"):
        column = f"replace({column}, '{escape}', ' ')"
    return column


# lists count without their brackets, as the statistics of the project do
_ROWS: Final = f"""
    SELECT m.seq, m.id, m.created_at_epoch, m.superseded_by, m.project_id, m.server_session_id,
      coalesce(length(m.title), 0) + coalesce(length(m.subtitle), 0) + coalesce(length(m.text), 0)
        + coalesce(length(m.narrative), 0) + length(m.facts) - 2 + length(m.concepts) - 2,
      {_lines("m.title", "m.subtitle", _plain("m.concepts"))}, {_lines("m.text", "m.narrative", _plain("m.facts"))},
      {_lines("m.neighbour_text")},
      right(rtrim(coalesce(nullif(m.narrative, ''), nullif(m.text, ''), m.title, ''), {_BLANK}), 1)
    FROM memory_items AS m WHERE m.seq = ANY(%(seqs)s) AND {_WITHIN} ORDER BY m.seq"""


def holdings(connection: Connection, scope: Scope) -> Holdings:
    """Return how much the asked projects hold."""
    rows = _run(
        connection,
        "SELECT s.project_id, s.memories, s.characters, s.changes,"
        " (SELECT max(m.created_at_epoch) FROM memory_items AS m"
        "  WHERE m.team_id = s.team_id AND m.project_id = s.project_id) AS newest_at_epoch"
        " FROM project_statistics AS s WHERE s.team_id = %(team_id)s AND s.project_id = ANY(%(project_ids)s)"
        " ORDER BY s.project_id",
        _scope(scope),
    )
    return Holdings(
        memories=sum(memories for _, memories, _, _, _ in rows),
        characters=sum(characters for _, _, characters, _, _ in rows),
        newest_at_epoch=max((newest or 0 for *_, newest in rows), default=0),
        changes=tuple((project_id, changes) for project_id, _, _, changes, _ in rows),
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
    column = "beside" if neighbours else "own"
    values = {"project_ids": list(scope.project_ids), "query": _query(all_of), "at_most": limit}
    if not filters:
        return _found(connection, column, {**values, "newest_first": newest_first})
    condition, asked = _conditions(scope, filters)
    inner = (
        f"SELECT DISTINCT m.seq FROM cmem_hits_in_{column}(%(project_ids)s, CAST(%(query)s AS tsquery)) AS f(seq)"
        f" JOIN memory_items AS m ON m.seq = f.seq WHERE {condition}"
        f" ORDER BY m.seq {'DESC' if newest_first else 'ASC'} LIMIT %(at_most)s"
    )
    return _seqs(connection, inner, {**values, **asked})


def beginning_with(connection: Connection, scope: Scope, beginning: str, *, limit: int) -> Seqs:
    """Return at most `limit` memories, the last by `seq`, that hold a word with this beginning."""
    word = _phrase((beginning,))
    asked = {"project_ids": list(scope.project_ids), "query": f"{word}:*" if word else "", "at_most": limit}
    return _found(connection, "own", {**asked, "newest_first": True})


def count(connection: Connection, scope: Scope, term: Phrases, *, limit: int) -> tuple[int, int]:
    """Return how many memories hold a term, at most `limit`, and the last `seq` that was counted."""
    values = {"project_ids": list(scope.project_ids), "query": _query((term,)), "at_most": limit}
    sql = "SELECT * FROM cmem_count_in_own(%(project_ids)s, CAST(%(query)s AS tsquery), %(at_most)s)"
    ((number, last_seq),) = _run(connection, sql, values)
    return number, last_seq


def count_up_to(connection: Connection, scope: Scope, seq: int) -> int:
    """Return how many memories of the asked projects have at most this `seq`."""
    sql = f"SELECT count(*) FROM memory_items AS m WHERE {_WITHIN} AND m.seq <= %(seq)s"
    ((number,),) = _run(connection, sql, {**_scope(scope), "seq": seq})
    return int(number)


def allowing(scope: Scope, filters: Filters) -> TextClause:
    """Return the scope and the filters as a condition on `memory_items AS m`."""
    condition, values = _conditions(scope, filters)
    return text(_PLACE.sub(r":\1", condition)).bindparams(**values)


def allowed(connection: Connection, scope: Scope, seqs: Seqs, filters: Filters) -> Seqs:
    """Return those memories that the filters let through."""
    condition, values = _conditions(scope, filters)
    inner = f"SELECT m.seq FROM memory_items AS m WHERE m.seq = ANY(%(seqs)s) AND {condition}"
    return _seqs(connection, inner, {**values, "seqs": seqs.tolist()})


def rows(connection: Connection, scope: Scope, seqs: Seqs) -> list[Row]:
    """Return what the ranker needs of memories, in the order of `seq`; unknown ones are left out."""
    found = _run(connection, _ROWS, {**_scope(scope), "seqs": seqs.tolist()})
    return [Row(*row) for row in found]


def by_id(connection: Connection, scope: Scope, memory_ids: Sequence[str], filters: Filters) -> dict[str, int]:
    """Return the `seq` by id of those memories that are of these projects and pass the filters."""
    condition, values = _conditions(scope, filters)
    sql = f"SELECT m.id, m.seq FROM memory_items AS m WHERE m.id = ANY(%(ids)s) AND {condition}"
    return dict(_run(connection, sql, {**values, "ids": list(memory_ids)}))


def by_time(connection: Connection, scope: Scope, seqs: Sequence[int]) -> list[int]:
    """Return memories in the order of their times, oldest first; unknown ones are left out."""
    sql = f"SELECT m.seq FROM memory_items AS m WHERE m.seq = ANY(%(seqs)s) AND {_WITHIN}"
    in_order = f"{sql} ORDER BY m.created_at_epoch, m.seq"
    return [seq for (seq,) in _run(connection, in_order, {**_scope(scope), "seqs": list(seqs)})]


def _scope(scope: Scope) -> dict[str, Any]:
    return {"team_id": scope.team_id, "project_ids": list(scope.project_ids)}


def _conditions(scope: Scope, filters: Filters) -> tuple[str, dict[str, Any]]:
    """Return the scope and every filter as a condition on `memory_items AS m`, with its values."""
    values = _scope(scope)
    parts = [_WITHIN]
    for name, condition, value in _asked(filters):
        if value is not None and value != []:
            parts.append(condition)
            values[name] = value
    return " AND ".join(parts), values


def _asked(filters: Filters) -> list[tuple[str, str, Any]]:
    lists = ("files_read", "files_modified")
    holds = _HOLDS if filters.files_exact else _IS_OR_BELOW
    either_list = " OR ".join(holds.format(column=column, asked="files") for column in lists)
    return [
        ("kinds", "m.kind = ANY(%(kinds)s)", list(filters.kinds)),
        ("types", "m.type = ANY(%(types)s)", list(filters.types)),
        ("concepts", _HOLDS.format(column="concepts", asked="concepts"), list(filters.concepts)),
        ("files", f"({either_list})", [path if path == "/" else path.rstrip("/") for path in filters.files]),
        ("platform_source", "m.platform_source = %(platform_source)s", filters.platform_source),
        ("server_session_id", "m.server_session_id = %(server_session_id)s", filters.server_session_id),
        ("created_after", "m.created_at_epoch >= %(created_after)s", filters.created_after),
        ("created_before", "m.created_at_epoch < %(created_before)s", filters.created_before),
    ]


def _query(all_of: tuple[Phrases, ...]) -> str:
    """Return the text of a tsquery; empty, which finds nothing, when a term holds no word at all."""
    terms = [[found for phrase in phrases if (found := _phrase(phrase))] for phrases in all_of]
    return " & ".join(f"({' | '.join(term)})" for term in terms) if all(terms) else ""


def _phrase(words: tuple[str, ...]) -> str:
    found = [word[:_WORD_CHARACTERS] for each in words for word in index_words(each)]
    return " <-> ".join(f"'{word}'" for word in found)


def _found(connection: Connection, column: str, values: Mapping[str, Any]) -> Seqs:
    asked = "%(project_ids)s, CAST(%(query)s AS tsquery), %(at_most)s, %(newest_first)s"
    return _keys(_run(connection, f"SELECT cmem_find_in_{column}({asked})", values))


def _seqs(connection: Connection, inner: str, values: Mapping[str, Any]) -> Seqs:
    # one text of all keys costs less than as many rows
    return _keys(_run(connection, f"SELECT string_agg(seq::text, ',') FROM ({inner}) AS found", values))


def _keys(rows: list[tuple[Any, ...]]) -> Seqs:
    """Return the keys in the one text of a result."""
    ((joined,),) = rows
    return np.sort(np.fromstring(joined or "", dtype=np.int64, sep=","))


def _run(connection: Connection, sql: str, values: Mapping[str, Any]) -> list[tuple[Any, ...]]:
    return list(execute(connection, sql, values).fetchall())
