"""Pieces of SQL that the subjects share: columns, functions, and whose rows may be seen."""

PLAIN = ("title", "subtitle", "text", "narrative")
LISTS = ("facts", "concepts")
EXTRA = ("search_text", "neighbour_text")
INDEXED = (*PLAIN, *LISTS, *EXTRA)
NOW_MS = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint"

SEES = "NULLIF(current_setting('cmem.team_id', true), '') IN ({team}, '*')"
"""Whether the rows of a team may be seen: set for each transaction, to a team or to `*` for the server itself."""
SEES_TEAM = SEES.format(team="team_id")


def function(signature: str, returns: str, body: str, *, declare: str = "", options: str = "") -> str:
    """Return a function in PL/pgSQL, bound to the schema in which it is made."""
    return f"""
    CREATE FUNCTION {signature} RETURNS {returns} LANGUAGE plpgsql {options} SET search_path FROM CURRENT AS $body$
    {declare}
    BEGIN
      {body}
    END
    $body$
    """


def changed(names: tuple[str, ...], old: str = "old", new: str = "new") -> str:
    before, after = (", ".join(f"{row}.{name}" for name in names) for row in (old, new))
    return f"({before}) IS DISTINCT FROM ({after})"


def lines(column: str) -> str:
    """Return SQL for the words of a JSON array: its escapes become blanks."""
    for escape in (r"\\", r"\n", r"\t", r"\r"):
        column = f"replace({column}, '{escape}', ' ')"
    return column
