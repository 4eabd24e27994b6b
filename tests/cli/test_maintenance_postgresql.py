"""`maintenance run` on PostgreSQL: the owner of the tables vacuums them, the server leaves that to autovacuum."""

import json

import pytest

from app.caller import Caller
from app.services.memories import memories
from app.services.operations import maintenance
from app.services.projects import projects
from app.store.database import Database
from tests.cli.test_maintenance import Command
from tests.databases import Databases, PostgresqlDatabases
from tests.postgresql import Cluster


@pytest.fixture(scope="session", params=["postgresql"])
def databases(cluster: Cluster) -> Databases:
    """PostgreSQL only."""
    return PostgresqlDatabases(cluster)


def vacuumed(store: Database) -> set[str]:
    """Return the tables that were vacuumed explicitly."""
    with store.read() as connection:
        sql = "SELECT relname FROM pg_stat_user_tables WHERE last_vacuum IS NOT NULL"
        return set(connection.exec_driver_sql(sql).scalars())


def test_the_command_vacuums_as_the_owner(command: Command, store: Database, owner: Caller):
    """That removes what deleted rows left in the tables and in full text."""
    with store.write() as connection:
        project_id = projects.create(connection, owner, name="p").id
        new = memories.NewMemory(project_id=project_id, kind="manual", type="manual", text="of old")
        memory_id = memories.add(connection, owner, new).memory.id
    with store.write() as connection:
        memories.remove(connection, owner, memory_id, precondition=lambda _: True)

    report = json.loads(command("maintenance", "run", "--json").stdout)

    assert (report["freedPages"], report["logEmptied"]) == (0, True)
    assert {"memory_items", "memory_items_fts", "vector_outbox"} <= vacuumed(store)
    assert command("doctor").exit_code == 0


def test_a_server_does_not_vacuum(store: Database, owner: Caller):
    """Its role owns nothing, so it could not."""
    maintenance.run(store)

    assert vacuumed(store) == set()
