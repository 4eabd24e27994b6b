"""The policies show each team only its own rows."""

from tests.store.row_level_security.two_teams import PROTECTED, TwoTeamDatabase, team_column, teams_in


def test_psql_without_team_sees_no_row_of_any_table(two_teams: TwoTeamDatabase):
    """Neither when no team is set, nor when it is set to nobody."""
    counts = "".join(f"SELECT count(*) FROM {table};\n" for table in PROTECTED)
    assert two_teams.psql(counts) == ["0"] * len(PROTECTED)
    assert two_teams.psql(f"SET cmem.team_id = '';\n{counts}") == ["0"] * len(PROTECTED)


def test_psql_with_team_sees_only_rows_of_that_team(two_teams: TwoTeamDatabase):
    """At least one row in every table."""
    begin = f"BEGIN; SET LOCAL cmem.team_id = '{two_teams.a.team_id}';\n"
    queries = "".join(f"SELECT DISTINCT {team_column(table)} FROM {table};\n" for table in PROTECTED)
    assert two_teams.psql(f"{begin}{queries}") == [two_teams.a.team_id] * len(PROTECTED)


def test_team_set_for_a_transaction_is_reset_at_its_end(two_teams: TwoTeamDatabase):
    """The next request on the same connection does not inherit it."""
    with two_teams.connect() as connection:
        with connection.transaction():
            connection.execute("SELECT set_config('cmem.team_id', %s, true)", [two_teams.a.team_id])
            assert teams_in(connection, "memory_items") == {two_teams.a.team_id}
        assert teams_in(connection, "memory_items") == set()


def test_security_definer_functions_show_and_change_no_foreign_rows(two_teams: TwoTeamDatabase):
    """The functions that search and index run as their owner, and check the team themselves."""
    find, in_context = (f"SELECT * FROM cmem_hits_in_{column}(%s, %s::tsquery)" for column in ("own", "beside"))
    count = "SELECT number FROM cmem_count_in_own(%s, %s::tsquery, 10)"
    find_all = "SELECT cmem_find_in_own(%s, %s::tsquery, 10, true) AS found"
    a_id, b_id = two_teams.a.team_id, two_teams.b.team_id
    with two_teams.connect(team=a_id) as a, two_teams.connect(team=b_id) as b, two_teams.connect() as nobody:
        query = [[two_teams.b.project_id], f"'banana{b_id.replace('-', '')}' | 'content'"]
        assert len(b.execute(find, query).fetchall()) == 1
        for stranger in (a, nobody):
            assert stranger.execute(find, query).fetchall() == []
            assert stranger.execute(in_context, query).fetchall() == []
            assert stranger.execute(count, query).fetchone() == {"number": 0}
            assert stranger.execute(find_all, query).fetchone() == {"found": None}
            stranger.execute("SELECT cmem_index_anew(0, NULL)")
        assert len(b.execute(find, query).fetchall()) == 1
