"""Migrations: on populated databases, up, down and up again, by several processes, and never half done."""

import hashlib
import itertools
import sqlite3
import subprocess
import sys
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.config import Config
from sqlalchemy.exc import OperationalError

from app.store import migrations
from app.store.database import Database
from app.store.fulltext import care
from tests.store.raw_writer import RawWriter

WORD = "lighthouse"
LATE_NAME = "memory_items_fts"  # the upgrade has made a view before it comes to this
TABLES = ("teams", "projects", "server_sessions", "agent_events", "memory_items", "memory_sources", "audit_log")


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'new' / 'cmem.db'}"


@pytest.fixture
def populated(database: Database) -> Database:
    """A database with rows in every table that has children or is one."""
    with closing(RawWriter(database.path)) as raw:
        place = {"team_id": raw.insert("teams"), "project_id": "p"}
        raw.insert("projects", id="p", team_id=place["team_id"])
        session = raw.insert("server_sessions", **place)
        for number in range(20):
            memory = raw.insert("memory_items", **place, server_session_id=session, text=f"{WORD} keeper {number}")
            raw.insert("memory_sources", **place, memory_item_id=memory)
            raw.insert("agent_events", **place, server_session_id=session)
        raw.run("PRAGMA foreign_keys = ON")
        raw.run("DELETE FROM memory_items WHERE seq % 3 = 0")
        raw.insert("audit_log", team_id=place["team_id"])
    return database


def path_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def rows(path: Path, sql: str) -> list[Any]:
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(sql).fetchall()


def schema(path: Path) -> list[Any]:
    return rows(path, "SELECT type, name, tbl_name, sql FROM sqlite_master ORDER BY type, name")


def contents(path: Path) -> dict[str, list[Any]]:
    return {table: rows(path, f"SELECT * FROM {table} ORDER BY 1") for table in TABLES}


def words(path: Path) -> list[Any]:
    return rows(path, f"SELECT rowid FROM memory_items_fts WHERE memory_items_fts MATCH '{WORD}' ORDER BY rowid")


def test_an_empty_machine_gets_a_database_at_head(url: str):
    """The first start makes the folder, the file and everything in it."""
    assert migrations.upgrade(url) == migrations.head() == migrations.current(url)


def test_the_tables_are_what_the_models_say(database: Database):
    """Nothing is left for autogenerate to change."""
    assert migrations.drift(database.url) == []


def test_alembics_own_check_finds_nothing(database: Database):
    """`alembic check` is clean."""
    migrations._run(database.url, command.check)


def test_down_and_up_again_loses_nothing(populated: Database):
    """Tables, triggers, indexes, rows, and which word leads to which row: all as before, text by text."""
    populated.close()
    before = schema(populated.path), contents(populated.path), words(populated.path)
    steps = migrations.revisions()

    for revision in steps[1:]:
        assert migrations.downgrade(populated.url, revision) == revision
    assert migrations.upgrade(populated.url) == migrations.head()

    assert (schema(populated.path), contents(populated.path), words(populated.path)) == before
    assert care.faults(populated) == []


def test_every_revision_can_be_left_and_reached_again(populated: Database):
    """Each single step down and up gives back the schema it started from."""
    revisions = migrations.revisions()
    for newer, older in itertools.pairwise(revisions):
        migrations.upgrade(populated.url, newer)
        before = schema(populated.path)
        migrations.downgrade(populated.url, older)
        migrations.upgrade(populated.url, newer)

        assert schema(populated.path) == before
        migrations.downgrade(populated.url, older)


def test_the_way_down_to_the_base_leaves_nothing(populated: Database):
    """`db downgrade base` empties the database, and it can be used again."""
    populated.close()
    migrations.downgrade(populated.url, "base")

    left = [name for _, name, _, _ in schema(populated.path) if not name.startswith("sqlite_")]
    assert [name for name in left if not name.startswith(("alembic_version", "sqlite_"))] == []
    assert migrations.upgrade(populated.url) == migrations.head()


def test_memories_written_before_full_text_are_found_after(database: Database):
    """The upgrade that installs full text indexes, counts and enqueues what stood already."""
    database.close()
    migrations.downgrade(database.url, "0001")
    with closing(RawWriter(database.path)) as raw:
        raw.insert("teams", id="t")
        raw.insert("projects", id="p", team_id="t")
        raw.insert("memory_items", team_id="t", project_id="p", text=WORD)

    migrations.upgrade(database.url)

    assert words(database.path) == [(1,)]
    assert rows(database.path, "SELECT memories, characters FROM project_statistics") == [(1, len(WORD))]
    assert rows(database.path, "SELECT operation FROM vector_outbox") == [("upsert",)]


def test_four_processes_at_once_migrate_once(url: str):
    """Whoever comes second waits, looks again and finds nothing to do."""
    code = f"from app.store import migrations; print(migrations.upgrade({url!r}))"
    starts = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(4)]

    assert [start.communicate(timeout=60)[0].strip() for start in starts] == [migrations.head()] * 4
    assert [start.returncode for start in starts] == [0] * 4
    assert migrations.drift(url) == []


def test_a_newer_database_is_refused_untouched(populated: Database):
    """Both versions are named and not a byte of the file changes."""
    with populated.write() as connection:
        connection.exec_driver_sql("UPDATE alembic_version SET version_num = '9999'")
    populated.close()
    before = hashlib.sha256(populated.path.read_bytes()).hexdigest()

    with pytest.raises(migrations.WrongRevision, match=f"9999.*{migrations.head()}"):
        migrations.upgrade(populated.url)

    assert hashlib.sha256(populated.path.read_bytes()).hexdigest() == before
    assert migrations.current(populated.url) == "9999"


def test_asking_for_the_revision_of_no_database_makes_none(url: str):
    """`db current` on an empty machine leaves it empty."""
    assert (migrations.current(url), path_of(url).exists()) == (None, False)


def test_a_migration_that_fails_leaves_nothing(populated: Database):
    """It is undone as a whole: schema, rows and revision stay what they were."""
    populated.close()
    migrations.downgrade(populated.url, "0001")
    with closing(sqlite3.connect(populated.path)) as connection:
        connection.execute(f"CREATE TABLE {LATE_NAME} (id)")
    before = schema(populated.path), contents(populated.path)

    with pytest.raises(OperationalError, match="already exists"):
        migrations.upgrade(populated.url)

    assert (schema(populated.path), contents(populated.path)) == before
    assert migrations.current(populated.url) == "0001"


def test_a_migration_that_would_lose_parents_is_undone(populated: Database):
    """Foreign keys are off while tables change; what that leaves alone stops the migration."""
    populated.close()

    def lose_parents(config: Config) -> None:
        config.attributes["connection"].exec_driver_sql("DELETE FROM teams")

    with pytest.raises(migrations.WrongRevision, match="without their parent"):
        migrations._run(populated.url, lose_parents)

    assert rows(populated.path, "SELECT count(*) FROM teams") == [(1,)]


def test_rows_that_somebody_else_left_alone_do_not_stop_an_upgrade(populated: Database):
    """A server must start although a shell with foreign keys off deleted a parent; `db check` tells of it."""
    populated.close()
    migrations.downgrade(populated.url, "0001")
    with closing(sqlite3.connect(populated.path, isolation_level=None)) as connection:
        connection.execute("DELETE FROM teams")

    assert migrations.upgrade(populated.url) == migrations.head()
