"""The server's role cannot disable row-level security, nor escape it."""

import pytest
from psycopg.errors import InsufficientPrivilege

from tests.postgresql import OWNER
from tests.store.row_level_security.two_teams import PROTECTED, TwoTeamDatabase, run


def test_server_role_owns_nothing_and_bypasses_nothing(two_teams: TwoTeamDatabase):
    """It is not a superuser, has no BYPASSRLS, cannot create roles, and is not a member of another role."""
    with two_teams.connect() as connection:
        role = connection.execute("SELECT * FROM pg_roles WHERE rolname = current_user").fetchone()
        owned = connection.execute("SELECT relname FROM pg_class WHERE relowner = current_user::regrole").fetchall()
        member_of = connection.execute(
            "SELECT roleid FROM pg_auth_members WHERE member = current_user::regrole"
        ).fetchall()
    powers = ("rolsuper", "rolbypassrls", "rolcreaterole", "rolcreatedb", "rolreplication")
    assert [power for power in powers if role[power]] == []
    assert (owned, member_of) == ([], [])


@pytest.mark.parametrize(
    "statement",
    [
        "TRUNCATE {table} CASCADE",
        "DROP POLICY tenant ON {table}",
        "ALTER POLICY tenant ON {table} USING (true)",
        "CREATE POLICY mine ON {table} USING (true)",
        "ALTER TABLE {table} DISABLE ROW LEVEL SECURITY",
        "ALTER TABLE {table} NO FORCE ROW LEVEL SECURITY",
        "ALTER TABLE {table} DISABLE TRIGGER ALL",
        "DROP TABLE {table} CASCADE",
    ],
)
def test_server_role_cannot_disable_row_level_security(no_teams: TwoTeamDatabase, statement: str):
    """Only the owner of a table can, whichever table it is."""
    with no_teams.connect(team="*") as connection:
        for table in PROTECTED:
            with pytest.raises(InsufficientPrivilege):
                run(connection, statement, table=table)


@pytest.mark.parametrize(
    "statement",
    [
        f"SET ROLE {OWNER}",
        f"SET SESSION AUTHORIZATION {OWNER}",
        "SET session_replication_role = replica",
        "CREATE FUNCTION pg_temp.mine() RETURNS text LANGUAGE sql SECURITY DEFINER AS 'SELECT 1::text';"
        f" ALTER FUNCTION pg_temp.mine() OWNER TO {OWNER}",
        "ALTER FUNCTION cmem_hits_in_own SECURITY INVOKER",
        "CREATE TABLE mine (id text)",
    ],
)
def test_server_role_cannot_escalate_its_privileges(no_teams: TwoTeamDatabase, statement: str):
    """It can neither become another role, nor suppress triggers."""
    with no_teams.connect() as connection, pytest.raises(InsufficientPrivilege):
        connection.execute(statement.encode())


def test_switching_row_security_off_shows_nothing(two_teams: TwoTeamDatabase):
    """PostgreSQL rejects the query instead of answering it without the policy."""
    with two_teams.connect(team=two_teams.a.team_id) as connection:
        connection.execute("SET row_security = off")
        with pytest.raises(InsufficientPrivilege):
            connection.execute("SELECT * FROM memory_items")
