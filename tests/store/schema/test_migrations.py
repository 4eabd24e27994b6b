"""Migrations: up and down on populated databases, by several processes at once, and always all or nothing."""

import itertools
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy import Connection, delete
from sqlalchemy.exc import DBAPIError

from app.caller import Caller, server_owner
from app.services.identity import teams
from app.services.memories import memories
from app.services.operations import fulltext_check
from app.services.projects import projects
from app.store.database import Database
from app.store.models import memory_items
from app.store.schema import migrations
from app.store.schema.sqlite import OrphanedRows
from tests import inspection
from tests.databases import Databases
from tests.services import full_project

WORD = "lighthouse"
LATE_NAME = "memory_items_fts"  # the upgrade creates this after other changes
TABLES = ("teams", "projects", "server_sessions", "agent_events", "memory_items", "memory_sources", "audit_log")
LEFT_BY_ALEMBIC = {"alembic_version", "alembic_version_pkc", "installed_objects"}


@pytest.fixture
def new_url(databases: Databases, tmp_path: Path) -> Iterator[str]:
    """The URL of a database that has no table yet."""
    yield databases.unmigrated_url(tmp_path)
    databases.drop(tmp_path)


@pytest.fixture
def database(databases: Databases, tmp_path: Path) -> Iterator[Database]:
    """A database at head, opened as the role that migrates it."""
    with closing(Database(databases.owner_url(tmp_path))) as opened:
        yield opened
    databases.drop(tmp_path)


@pytest.fixture
def populated(database: Database) -> Database:
    """A database with rows in every table that has a foreign key or is the target of one."""
    with database.write() as connection:
        caller = owner(connection)
    project_id = full_project.create(database, caller, rows=40)
    with database.write() as connection:
        for number in range(20):
            remember(connection, caller, project_id, f"{WORD} keeper {number}")
        connection.execute(delete(memory_items).where(memory_items.c.seq % 3 == 0))
    database.close()
    return database


def owner(connection: Connection) -> Caller:
    return server_owner().within(teams.create(connection, server_owner(), name="t").id)


def remember(connection: Connection, caller: Caller, project_id: str, text: str) -> None:
    memories.add(connection, caller, memories.NewMemory(project_id=project_id, kind="manual", type="manual", text=text))


def rows(database: Database, sql: str) -> list[Any]:
    with database.read() as connection:
        return [tuple(row) for row in connection.exec_driver_sql(sql)]


def run(database: Database, sql: str) -> None:
    with database.write() as connection:
        connection.exec_driver_sql(sql)
    database.close()


def contents(database: Database) -> dict[str, list[Any]]:
    return {table: rows(database, f"SELECT * FROM {table} ORDER BY id") for table in TABLES}


def test_upgrade_creates_a_database_at_head(new_url: str):
    """The first start creates the folder, the file and everything in it."""
    assert migrations.upgrade(new_url) == migrations.head() == migrations.current(new_url)


def test_tables_match_the_models(database: Database):
    """Autogenerate would change nothing."""
    assert migrations.drift(database.url) == []


def test_alembic_check_passes(database: Database):
    """`alembic check` reports no difference."""
    migrations._run(database.url, command.check)


def test_downgrade_and_upgrade_lose_nothing(populated: Database):
    """Tables, triggers, indexes, rows and full text are all the same as before."""
    before = inspection.schema(populated.url), contents(populated), inspection.indexed_seqs(populated, WORD)
    populated.close()
    steps = migrations.known_revisions()

    for revision in steps[1:]:
        assert migrations.downgrade(populated.url, revision) == revision
    assert migrations.upgrade(populated.url) == migrations.head()

    assert (inspection.schema(populated.url), contents(populated), inspection.indexed_seqs(populated, WORD)) == before
    assert fulltext_check.faults(populated) == []


def test_every_single_step_is_reversible(populated: Database):
    """One step down and up again results in the same schema."""
    revisions = migrations.known_revisions()
    for newer, older in itertools.pairwise(revisions):
        migrations.upgrade(populated.url, newer)
        before = inspection.schema(populated.url)
        migrations.downgrade(populated.url, older)
        migrations.upgrade(populated.url, newer)

        assert inspection.schema(populated.url) == before
        migrations.downgrade(populated.url, older)


def test_downgrade_to_base_leaves_nothing(populated: Database):
    """`db downgrade base` empties the database, which can be upgraded again."""
    migrations.downgrade(populated.url, "base")

    assert inspection.object_names(populated) <= LEFT_BY_ALEMBIC
    populated.close()
    assert migrations.upgrade(populated.url) == migrations.head()


def test_memories_written_before_full_text_are_found_after(database: Database):
    """The upgrade that installs full text indexes, counts and enqueues existing rows."""
    migrations.downgrade(database.url, "0001")
    with database.write() as connection:
        caller = owner(connection)
        remember(connection, caller, projects.create(connection, caller, name="p").id, WORD)
    database.close()

    migrations.upgrade(database.url)

    assert inspection.indexed_seqs(database, WORD) == [1]
    assert rows(database, "SELECT memories, characters FROM project_statistics") == [(1, len(WORD))]
    assert rows(database, "SELECT operation FROM vector_outbox") == [("upsert",)]


def upgrade_in_four_processes(url: str) -> list[str]:
    """Return the revisions that they print."""
    code = f"from app.store.schema import migrations; print(migrations.upgrade({url!r}))"
    starts = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)]
    return [start.communicate(timeout=60)[0].strip() for start in starts]


def test_four_processes_at_once_create_one_database(new_url: str):
    """The others wait, check again and find nothing to do."""
    assert upgrade_in_four_processes(new_url) == [migrations.head()] * 4
    assert migrations.drift(new_url) == []


def test_four_processes_at_once_upgrade_an_older_database_once(populated: Database):
    """And lose nothing that is in it."""
    before = inspection.schema(populated.url), contents(populated), inspection.indexed_seqs(populated, WORD)
    populated.close()
    migrations.downgrade(populated.url, "0001")

    assert upgrade_in_four_processes(populated.url) == [migrations.head()] * 4

    assert (inspection.schema(populated.url), contents(populated), inspection.indexed_seqs(populated, WORD)) == before
    assert fulltext_check.faults(populated) == []


def test_newer_database_is_rejected_unchanged(populated: Database):
    """The error names both versions."""
    run(populated, "UPDATE alembic_version SET version_num = '9999'")
    before = inspection.snapshot(populated.url)

    with pytest.raises(migrations.WrongRevision, match=f"9999.*{migrations.head()}"):
        migrations.upgrade(populated.url)

    assert inspection.snapshot(populated.url) == before
    assert migrations.current(populated.url) == "9999"


@pytest.mark.sqlite
def test_reading_the_revision_does_not_create_a_database(new_url: str):
    """As `db current` does before the first start."""
    assert (migrations.current(new_url), Path(new_url.removeprefix("sqlite:///")).exists()) == (None, False)


def test_failed_migration_is_rolled_back(populated: Database):
    """Schema, rows and revision stay as they were."""
    migrations.downgrade(populated.url, "0001")
    run(populated, f"CREATE TABLE {LATE_NAME} (id INTEGER)")
    before = inspection.schema(populated.url), contents(populated)
    populated.close()

    with pytest.raises(DBAPIError, match="already exists"):
        migrations.upgrade(populated.url)

    assert (inspection.schema(populated.url), contents(populated)) == before
    assert migrations.current(populated.url) == "0001"


@pytest.mark.sqlite
def test_migration_that_would_orphan_rows_is_rolled_back(populated: Database):
    """Foreign keys are off while tables change, and are checked before the commit."""

    def lose_parents(config: Config) -> None:
        config.attributes["connection"].exec_driver_sql("DELETE FROM teams")

    with pytest.raises(OrphanedRows, match="without their parent"):
        migrations._run(populated.url, lose_parents)

    assert rows(populated, "SELECT count(*) FROM teams") == [(1,)]


@pytest.mark.sqlite
def test_rows_orphaned_before_do_not_stop_an_upgrade(populated: Database):
    """A server must start although a shell with foreign keys off deleted a parent; `db check` reports it."""
    migrations.downgrade(populated.url, "0001")
    with closing(sqlite3.connect(populated.path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM teams")

    assert migrations.upgrade(populated.url) == migrations.head()
