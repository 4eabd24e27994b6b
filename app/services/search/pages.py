"""One page of a ranking: the memories themselves, and the cursor of the next page."""

from collections.abc import Sequence
from typing import Any, Final

from sqlalchemy import Connection, bindparam

from app.caller import Caller
from app.errors import Invalid
from app.retrieval import text
from app.services.search.query import SearchParams
from app.services.search.results import Hit, Ranking
from app.services.shared import paging
from app.store.models import memory_items
from app.store.prepared import PreparedStatement
from app.store.records import Memory, columns
from app.store.scope import owned_template, parameters

# One at a time: given many keys at once, SQLite scans all memories of the team instead.
_BY_SEQ: Final = PreparedStatement(
    owned_template(memory_items, *columns(memory_items, Memory)).where(memory_items.c.seq == bindparam("seq")), Memory
)


def read(
    connection: Connection, caller: Caller, params: SearchParams, terms: Sequence[text.Term], ranking: Ranking
) -> tuple[list[Hit], str | None]:
    """Return one page of a ranking, and the cursor of the next. Raises Invalid for a cursor of another search."""
    bound_to = paging.binding(
        caller,
        ["search", params.project_ids, params.query, params.mode, params.filters, params.order_by, params.min_score],
    )
    seqs = ranking.seqs.tolist()
    start = 0 if params.cursor is None else _resume(seqs, paging.decode(params.cursor, bound_to))
    end = start + params.limit
    by_retriever = [candidates.contributions(ranking.seqs[start:end]) for candidates in ranking.candidates]
    hits = []
    for seq, score in zip(seqs[start:end], ranking.scores[start:end].tolist(), strict=True):
        if (memory := _BY_SEQ.first(connection, {**parameters(caller), "seq": seq})) is not None:
            contributions = tuple(by_seq[seq] for by_seq in by_retriever if seq in by_seq)
            matched_by = tuple(contribution.retriever for contribution in contributions)
            hits.append(Hit(memory, score, matched_by, terms, contributions if params.explain else ()))
    if end >= len(seqs):
        return hits, None
    return hits, paging.encode(paging.Cursor([end, seqs[end - 1]], bound_to))


def _resume(seqs: Sequence[int], cursor: Sequence[Any]) -> int:
    """Return where to continue: after the last memory shown, or, if it no longer matches, where it would be."""
    if [type(value) for value in cursor] != [int, int]:
        raise Invalid.field("cursor", "not a cursor of this search")
    offset: int
    offset, last_seq = cursor
    return seqs.index(last_seq) + 1 if last_seq in seqs else offset
