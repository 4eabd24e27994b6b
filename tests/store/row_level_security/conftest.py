"""A server on PostgreSQL, and two new teams for each test that needs them."""

from collections.abc import Callable, Iterator

import pytest
from sqlalchemy import make_url

from tests.conftest import Server, Tenant, servers
from tests.databases import PostgresqlDatabases
from tests.postgresql import Cluster
from tests.store.row_level_security.two_teams import PROTECTED, TwoTeamDatabase, fill, teams_in


@pytest.fixture(scope="package")
def databases(cluster: Cluster) -> PostgresqlDatabases:
    return PostgresqlDatabases(cluster)


@pytest.fixture(scope="package")
def server(databases: PostgresqlDatabases, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with servers(databases, tmp_path_factory.mktemp("row_level_security")) as start:
        yield start()


@pytest.fixture
def two_teams(databases: PostgresqlDatabases, server: Server, as_team: Callable[[str], Tenant]) -> TwoTeamDatabase:
    """Two new teams with a row in every table; their words differ."""
    name = make_url(server.settings.database_url).database or ""
    made = TwoTeamDatabase(databases.cluster, name, as_team("a"), as_team("b"))
    fill(server, made.a, f"apple{made.a.team_id}")
    fill(server, made.b, f"banana{made.b.team_id}")
    with made.connect(team="*") as connection:
        for table in PROTECTED:
            assert {made.a.team_id, made.b.team_id} <= teams_in(connection, table), f"{table} was not filled"
    return made


@pytest.fixture
def no_teams(databases: PostgresqlDatabases, server: Server) -> TwoTeamDatabase:
    """The same database without new teams, for what is rejected in any case."""
    name = make_url(server.settings.database_url).database or ""
    return TwoTeamDatabase(databases.cluster, name, None, None)  # type: ignore[arg-type]
