"""The policies let nobody write rows of another team."""

from typing import Any

import psycopg
import pytest
from psycopg import sql
from psycopg.errors import InsufficientPrivilege

from tests.conftest import Tenant
from tests.store.row_level_security.two_teams import PROTECTED, REJECTED, TwoTeamDatabase, run, team_column


@pytest.mark.parametrize("table", PROTECTED)
def test_no_row_can_be_written_into_another_team(two_teams: TwoTeamDatabase, table: str):
    """Neither inserted there, nor moved there, nor changed or deleted there."""
    team = team_column(table)
    with two_teams.connect(team="*") as everyone:
        foreign = run(everyone, "SELECT * FROM {table} WHERE {team} = %s", two_teams.b.team_id, table=table, team=team)
        row = foreign.fetchone()
        before = rows_of(everyone, table, two_teams.b)
    with two_teams.connect(team=two_teams.a.team_id) as connection:
        columns, values = (
            sql.SQL(", ").join(map(sql.Identifier, row)),
            sql.SQL(", ").join([sql.Placeholder()] * len(row)),
        )
        insert = sql.SQL("INSERT INTO {} ({}) OVERRIDING SYSTEM VALUE VALUES ({})")
        with pytest.raises(REJECTED):
            connection.execute(insert.format(sql.Identifier(table), columns, values), list(row.values()))
        with pytest.raises(REJECTED):
            run(connection, "UPDATE {table} SET {team} = %s", two_teams.b.team_id, table=table, team=team)
        for change in ("UPDATE {table} SET {team} = {team} WHERE {team} = %s", "DELETE FROM {table} WHERE {team} = %s"):
            assert affected_rows(connection, change, two_teams.b.team_id, table=table, team=team) == 0
    with two_teams.connect(team="*") as everyone:
        assert rows_of(everyone, table, two_teams.b) == before


def rows_of(connection: psycopg.Connection[Any], table: str, tenant: Tenant) -> list[dict[str, Any]]:
    """Return all rows of a team in a table."""
    query = "SELECT * FROM {table} WHERE {team} = %s ORDER BY 1, 2"
    return run(connection, query, tenant.team_id, table=table, team=team_column(table)).fetchall()


def affected_rows(connection: psycopg.Connection[Any], statement: str, *values: object, **names: str) -> int:
    """Return the number of rows that a statement changed; 0 when the role lacks the privilege."""
    try:
        return run(connection, statement, *values, **names).rowcount
    except InsufficientPrivilege:
        return 0
