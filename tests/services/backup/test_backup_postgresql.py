"""Restoring on PostgreSQL: into an empty database, next to foreign objects, and when killed halfway."""

import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Final

import psycopg
import pytest

from app.caller import server_owner
from app.errors import Conflict
from app.services.backup.backup import DataLocation
from app.services.identity import teams
from app.services.operations import fulltext_check
from app.services.projects import projects
from app.store.backup import BackupError
from app.store.database import Database
from app.store.schema import migrations
from tests import ROOT
from tests.postgresql import OWNER, SERVER, Cluster
from tests.services.backup.test_backup import lose_most, remember, restore, texts, write

MEMORIES: Final = 1_000
_numbers: Final = itertools.count()

MakeLocation = Callable[..., DataLocation]


@pytest.fixture
def make(cluster: Cluster, tmp_path: Path) -> Iterator[MakeLocation]:
    """Create databases that are empty, without any table, or copies of a template."""
    made = []

    def made_of(template: str = "template0") -> DataLocation:
        made.append(f"restoring_{next(_numbers)}")
        cluster.create(made[-1], template)
        return DataLocation(cluster.url(OWNER, made[-1]), tmp_path / "chroma", cluster.url(SERVER, made[-1]))

    yield made_of
    for name in made:
        cluster.drop(name)


@pytest.fixture(scope="module")
def template(cluster: Cluster) -> Iterator[str]:
    """A database with 1,000 memories, to be copied."""
    name = f"filled_{next(_numbers)}"
    cluster.create(name)
    url = cluster.url(OWNER, name)
    migrations.upgrade(url)
    migrations.grant(url, cluster.url(SERVER, name))
    with closing(Database(url)) as database:
        with database.write() as connection:
            caller = server_owner().within(teams.create(connection, server_owner(), name="a").id)
            project_id = projects.create(connection, caller, name="p").id
        remember(database, caller, project_id, range(MEMORIES))
    yield name
    cluster.drop(name)


@pytest.fixture
def location(template: str, make: MakeLocation) -> DataLocation:
    """The data of a server with 1,000 memories."""
    return make(template)


def asked(location: DataLocation, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(location.url.replace("+psycopg", ""), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_empty_database_is_filled(location: DataLocation, make: MakeLocation, tmp_path: Path):
    """Tables and privileges included: only the roles have to exist."""
    write(location, tmp_path / "b.dump")
    elsewhere = make()

    restore(tmp_path / "b.dump", elsewhere)

    assert texts(elsewhere) == texts(location)
    with closing(Database(elsewhere.url)) as database:
        assert fulltext_check.faults(database) == []


def test_empty_database_is_not_backed_up(make: MakeLocation, tmp_path: Path):
    """The file would look like a backup."""
    with pytest.raises(BackupError, match="not a database of cmem-server"):
        write(make(), tmp_path / "b.dump")


def test_server_that_lost_its_lock_is_detected(location: DataLocation, tmp_path: Path):
    """The lock was lost with its connection when PostgreSQL restarted; the other connections were re-established."""
    write(location, tmp_path / "b.dump")
    with closing(Database(location.server_url)) as served:
        with served.read() as connection:
            connection.exec_driver_sql("SELECT 1")

        with pytest.raises(Conflict, match="stop it first"):
            restore(tmp_path / "b.dump", location)

    restore(tmp_path / "b.dump", location)


def test_foreign_objects_are_kept(location: DataLocation, tmp_path: Path):
    """Whatever others created next to our tables meanwhile."""
    write(location, tmp_path / "b.dump")
    asked(location, "CREATE TABLE strange AS SELECT 1 AS answer")

    restore(tmp_path / "b.dump", location)

    assert asked(location, "SELECT answer FROM strange") == [(1,)]
    assert len(texts(location)) == MEMORIES


def test_restore_that_would_touch_foreign_objects_is_rejected(location: DataLocation, tmp_path: Path):
    """They are in the backup with the rest of the schema; nothing is lost."""
    asked(location, "CREATE TABLE strange AS SELECT 1 AS answer")
    write(location, tmp_path / "b.dump")
    asked(location, "UPDATE strange SET answer = 2")

    with pytest.raises(BackupError, match='"strange" already exists'):
        restore(tmp_path / "b.dump", location)

    assert asked(location, "SELECT answer FROM strange") == [(2,)]
    assert len(texts(location)) == MEMORIES


def test_altered_objects_are_as_installed_afterwards(location: DataLocation, tmp_path: Path):
    """Even if they were lost before the backup was written."""
    asked(location, "DROP TRIGGER trg_memory_items_outbox_insert ON memory_items")
    asked(location, "DROP FUNCTION trg_audit_log_update CASCADE")
    write(location, tmp_path / "b.dump")

    restore(tmp_path / "b.dump", location)

    with closing(Database(location.url)) as database:
        assert fulltext_check.faults(database) == []


def test_table_that_hides_its_rows_is_not_backed_up(location: DataLocation, tmp_path: Path):
    """Without its policy it looks empty, to `pg_dump` as well."""
    asked(location, "DROP POLICY tenant ON projects")

    with pytest.raises(BackupError, match="policy tenant on projects is not as installed"):
        write(location, tmp_path / "b.dump")


def test_older_backup_is_migrated_to_head(location: DataLocation, tmp_path: Path):
    """In the same transaction."""
    migrations.downgrade(location.url, "0002")
    manifest = write(location, tmp_path / "b.dump")
    migrations.upgrade(location.url)

    restore(tmp_path / "b.dump", location)

    assert (manifest.revision, migrations.current(location.url)) == ("0002", migrations.head())
    with closing(Database(location.url)) as database:
        assert fulltext_check.faults(database) == []


@pytest.mark.parametrize("at", ["DROP TABLE", "COPY public.memory_items ", "ADD CONSTRAINT", "ANALYZE", "GRANT"])
def test_killed_restore_changes_nothing(location: DataLocation, tmp_path: Path, at: str):
    """Even after most of its statements; running it again completes it."""
    write(location, tmp_path / "b.dump")
    lose_most(location)
    # A statement may be over before anybody has seen it: after it, the restore waits to be killed.
    script = (
        "import sys, time; from pathlib import Path; from sqlalchemy import Engine, event\n"
        "from app.services.backup import backup\n"
        "backup_file, url, vectors, server_url, at = sys.argv[1:]\n"
        "wait = lambda connection, cursor, statement, *_: time.sleep(120) if at in statement else None\n"
        "event.listen(Engine, 'after_cursor_execute', wait)\n"
        "location = backup.DataLocation(url, Path(vectors), server_url)\n"
        "backup.restore(Path(backup_file), location, progress=lambda step: None)"
    )
    addresses = [location.url, str(location.vectors), location.server_url]
    with subprocess.Popen([sys.executable, "-c", script, tmp_path / "b.dump", *addresses, at], cwd=ROOT) as restoring:
        wait_for(location, at)
        os.kill(restoring.pid, signal.SIGKILL)

    assert restoring.returncode == -signal.SIGKILL
    assert len(texts(location)) == 100
    restore(tmp_path / "b.dump", location)
    assert len(texts(location)) == MEMORIES


def wait_for(location: DataLocation, statement: str) -> None:
    """Wait until a statement is running, or was the last one."""
    seen = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE %s"
    give_up_at = time.monotonic() + 60
    with psycopg.connect(location.url.replace("+psycopg", ""), autocommit=True) as connection:
        while connection.execute(seen, [f"%{statement}%"]).fetchone() == (0,):
            assert time.monotonic() < give_up_at, f"{statement} was never seen"
