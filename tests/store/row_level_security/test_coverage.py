"""No table is left without a policy, and no function bypasses the policies unnoticed."""

from typing import Any

import psycopg

from tests.postgresql import OWNER
from tests.store.row_level_security.two_teams import PROTECTED, UNPROTECTED, TwoTeamDatabase


def policies(connection: psycopg.Connection[Any]) -> dict[str, tuple[bool, bool, int]]:
    """Return for each table: is row-level security enabled, is it forced on the owner, the number of policies."""
    rows = connection.execute(
        "SELECT relname, relrowsecurity, relforcerowsecurity,"
        " (SELECT count(*) FROM pg_policy WHERE polrelid = c.oid) AS policies"
        " FROM pg_class AS c WHERE relkind IN ('r', 'p') AND relnamespace = current_schema()::regnamespace"
    )
    return {row["relname"]: (row["relrowsecurity"], row["relforcerowsecurity"], row["policies"]) for row in rows}


def unexpectedly_unprotected(connection: psycopg.Connection[Any]) -> set[str]:
    """Return the tables without an effective policy that are not known to need none."""
    by_table = policies(connection)
    return {name for name, (is_enabled, _, count) in by_table.items() if not is_enabled or not count} - UNPROTECTED


def test_every_table_is_protected_or_known_to_need_no_protection(no_teams: TwoTeamDatabase):
    """A migration that adds a table has to decide; its owner is bound by the policies, too."""
    with no_teams.connect(OWNER) as connection:
        assert unexpectedly_unprotected(connection) == set()
        forced = {name for name, (_, is_forced, _) in policies(connection).items() if is_forced}
        with_team = connection.execute(
            "SELECT DISTINCT table_name FROM information_schema.columns"
            " WHERE table_schema = current_schema() AND column_name = 'team_id'"
        )
        assert {row["table_name"] for row in with_team} & UNPROTECTED == set()
    # the search functions read this table as its owner, and check the team themselves
    assert forced == set(PROTECTED) - {"memory_items_fts"}


def test_table_that_a_migration_forgot_is_found(no_teams: TwoTeamDatabase):
    """Whether or not it has rows of a team."""
    with no_teams.connect(OWNER) as connection, connection.transaction(force_rollback=True):
        connection.execute("CREATE TABLE forgotten (id text, team_id text)")
        assert unexpectedly_unprotected(connection) == {"forgotten"}


def test_security_definer_functions_are_known_and_have_a_fixed_search_path(no_teams: TwoTeamDatabase):
    """Otherwise a caller could substitute other tables by its own search_path."""
    with no_teams.connect() as connection:
        rows = connection.execute(
            "SELECT proname, proconfig FROM pg_proc WHERE prosecdef AND pronamespace = current_schema()::regnamespace"
        ).fetchall()
    assert {row["proname"] for row in rows} == {
        "cmem_count_in_own",
        *(f"cmem_{verb}_in_{column}" for verb in ("hits", "find") for column in ("own", "beside")),
        "cmem_index_anew",
        *(f"trg_memory_items_fts_{verb}" for verb in ("insert", "update", "delete")),
    }
    assert [row for row in rows if not any(each.startswith("search_path=") for each in row["proconfig"])] == []
