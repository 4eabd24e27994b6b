"""What full text and JSON columns are asked with."""

from migrations.postgresql_0002.sql import SEES, SEES_TEAM, function

# `@@` is not leakproof: under a policy it would be asked of every row of the team instead of the index. These functions
# run as their owner, whom the policy of this one table does not bind, and check the team themselves.
_OPTIONS = "STABLE SECURITY DEFINER SET enable_seqscan = off"
_VALUES = "USING project_ids[1], query, at_most"


def _hits(column: str) -> str:
    """Return SQL for every hit in the asked projects; a memory of several parts may be there more than once."""
    return f"""
        SELECT f.seq FROM unnest(project_ids) AS asked(id) CROSS JOIN LATERAL (
          SELECT seq, team_id FROM memory_items_fts WHERE project_id = asked.id AND {column} @@ query OFFSET 0
        ) AS f WHERE {SEES.format(team="f.team_id")}"""


def _of_one_project(column: str, order: str) -> str:
    """Return SQL for the first or last hits of one project, for EXECUTE with project, query and limit."""
    return (
        f"SELECT DISTINCT seq FROM memory_items_fts WHERE project_id = $1 AND {column} @@ $2 AND {SEES_TEAM}"
        f" ORDER BY seq {order} LIMIT $3"
    )


def _searches(column: str) -> tuple[str, ...]:
    """Return what finds in a column: every hit, and the first or last as one text."""
    hits = _hits(column)
    first, last = (_of_one_project(column, order) for order in ("ASC", "DESC"))
    listed = "SELECT string_agg(seq::text, ',') FROM ({found}) AS found"
    return (
        function(
            f"cmem_hits_in_{column}(project_ids text[], query tsquery)",
            "SETOF bigint",
            f"RETURN QUERY {hits};",
            options=_OPTIONS,
        ),
        # of one project, words that many memories hold are found by walking them in order, until there are enough;
        # which way is shorter depends on the words, so that the plan is made for each question
        function(
            f"cmem_find_in_{column}(project_ids text[], query tsquery, at_most bigint, newest_first boolean)",
            "text",
            f"""
            IF cardinality(project_ids) = 1 AND newest_first THEN
              EXECUTE $q${listed.format(found=last)}$q$ INTO found {_VALUES};
            ELSIF cardinality(project_ids) = 1 THEN
              EXECUTE $q${listed.format(found=first)}$q$ INTO found {_VALUES};
            ELSE
              SELECT string_agg(few.seq::text, ',') INTO found FROM (
                SELECT hit.seq FROM ({hits}) AS hit GROUP BY hit.seq
                ORDER BY CASE WHEN newest_first THEN -hit.seq ELSE hit.seq END LIMIT at_most
              ) AS few;
            END IF;
            RETURN found;
            """,
            declare="DECLARE found text;",
            options=_OPTIONS,
        ),
    )


_COUNTED = "SELECT count(*), coalesce(max(seq), 0) FROM ({found}) AS found"
_COUNTING = function(
    "cmem_count_in_own(project_ids text[], query tsquery, at_most bigint, OUT number bigint, OUT last bigint)",
    "record",
    f"""
    IF cardinality(project_ids) = 1 THEN
      EXECUTE $q${_COUNTED.format(found=_of_one_project("own", "ASC"))}$q$ INTO number, last {_VALUES};
    ELSE
      SELECT count(*), coalesce(max(seq), 0) INTO number, last
      FROM (SELECT hit.seq FROM ({_hits("own")}) AS hit GROUP BY hit.seq ORDER BY hit.seq LIMIT at_most) AS few;
    END IF;
    """,
    options=_OPTIONS,
)

FINDING = (
    # damaged JSON reads as an empty list
    function(
        "cmem_list(items text)",
        "text[]",
        """
        RETURN array(SELECT jsonb_array_elements_text(items::jsonb));
        EXCEPTION WHEN OTHERS THEN RETURN '{}';
        """,
        options="IMMUTABLE PARALLEL SAFE",
    ),
    function(
        "cmem_object(pairs text)",
        "jsonb",
        """
        RETURN pairs::jsonb;
        EXCEPTION WHEN OTHERS THEN RETURN '{}'::jsonb;
        """,
        options="IMMUTABLE PARALLEL SAFE",
    ),
    *_searches("own"),
    *_searches("beside"),
    _COUNTING,
)
