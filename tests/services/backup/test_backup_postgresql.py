"""Restoring on PostgreSQL: into an empty database, beside what is not ours, and killed in the midst of it."""

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
from app.services.backup.backup import Place
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

MakePlace = Callable[..., Place]


@pytest.fixture
def make(cluster: Cluster, tmp_path: Path) -> Iterator[MakePlace]:
    """Make databases that hold nothing, not even tables, or what a template holds."""
    made = []

    def made_of(template: str = "template0") -> Place:
        made.append(f"restoring_{next(_numbers)}")
        cluster.create(made[-1], template)
        return Place(cluster.url(OWNER, made[-1]), tmp_path / "chroma", cluster.url(SERVER, made[-1]))

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
def place(template: str, make: MakePlace) -> Place:
    """The data of a server with 1,000 memories."""
    return make(template)


def asked(place: Place, statement: str) -> list[tuple[object, ...]]:
    with psycopg.connect(place.url.replace("+psycopg", ""), autocommit=True) as connection:
        cursor = connection.execute(statement.encode())
        return cursor.fetchall() if cursor.description else []


def test_an_empty_database_is_filled(place: Place, make: MakePlace, tmp_path: Path):
    """Tables, rights and all: there is nothing to prepare but the roles."""
    write(place, tmp_path / "b.dump")
    elsewhere = make()

    restore(tmp_path / "b.dump", elsewhere)

    assert texts(elsewhere) == texts(place)
    with closing(Database(elsewhere.url)) as database:
        assert fulltext_check.faults(database) == []


def test_an_empty_database_is_not_backed_up(make: MakePlace, tmp_path: Path):
    """It would look like a backup."""
    with pytest.raises(BackupError, match="holds nothing of cmem-server"):
        write(make(), tmp_path / "b.dump")


def test_a_server_that_lost_its_lock_is_seen(place: Place, tmp_path: Path):
    """It went with the connection that held it, when PostgreSQL was restarted; the others were made again."""
    write(place, tmp_path / "b.dump")
    with closing(Database(place.server_url)) as served:
        with served.read() as connection:
            connection.exec_driver_sql("SELECT 1")

        with pytest.raises(Conflict, match="stop it first"):
            restore(tmp_path / "b.dump", place)

    restore(tmp_path / "b.dump", place)


def test_what_is_not_ours_stays(place: Place, tmp_path: Path):
    """What others made meanwhile beside our tables is left alone."""
    write(place, tmp_path / "b.dump")
    asked(place, "CREATE TABLE strange AS SELECT 1 AS answer")

    restore(tmp_path / "b.dump", place)

    assert asked(place, "SELECT answer FROM strange") == [(1,)]
    assert len(texts(place)) == MEMORIES


def test_a_restore_that_would_touch_what_is_not_ours_is_refused(place: Place, tmp_path: Path):
    """It came into the backup with the rest of the schema; nothing is lost."""
    asked(place, "CREATE TABLE strange AS SELECT 1 AS answer")
    write(place, tmp_path / "b.dump")
    asked(place, "UPDATE strange SET answer = 2")

    with pytest.raises(BackupError, match='"strange" already exists'):
        restore(tmp_path / "b.dump", place)

    assert asked(place, "SELECT answer FROM strange") == [(2,)]
    assert len(texts(place)) == MEMORIES


def test_what_was_altered_is_as_installed_afterwards(place: Place, tmp_path: Path):
    """A backup brings back what somebody lost before it was written."""
    asked(place, "DROP TRIGGER trg_memory_items_outbox_insert ON memory_items")
    asked(place, "DROP FUNCTION trg_audit_log_update CASCADE")
    write(place, tmp_path / "b.dump")

    restore(tmp_path / "b.dump", place)

    with closing(Database(place.url)) as database:
        assert fulltext_check.faults(database) == []


def test_a_table_that_shows_no_rows_is_not_backed_up(place: Place, tmp_path: Path):
    """Without its policy it looks empty, to `pg_dump` too."""
    asked(place, "DROP POLICY tenant ON projects")

    with pytest.raises(BackupError, match="policy tenant on projects is not as installed"):
        write(place, tmp_path / "b.dump")


def test_an_older_backup_is_brought_to_head(place: Place, tmp_path: Path):
    """In the same transaction."""
    migrations.downgrade(place.url, "0002")
    manifest = write(place, tmp_path / "b.dump")
    migrations.upgrade(place.url)

    restore(tmp_path / "b.dump", place)

    assert (manifest.revision, migrations.current(place.url)) == ("0002", migrations.head())
    with closing(Database(place.url)) as database:
        assert fulltext_check.faults(database) == []


@pytest.mark.parametrize("at", ["DROP TABLE", "COPY public.memory_items ", "ADD CONSTRAINT", "ANALYZE", "GRANT"])
def test_killed_in_the_midst_of_it_nothing_has_happened(place: Place, tmp_path: Path, at: str):
    """Also after most of its statements; run again, it ends well."""
    write(place, tmp_path / "b.dump")
    lose_most(place)
    script = (
        "import sys; from pathlib import Path; from app.services import backup\n"
        "backup_file, url, vectors, server_url = sys.argv[1:]\n"
        "backup.restore(Path(backup_file), backup.Place(url, Path(vectors), server_url), progress=lambda step: None)"
    )
    addresses = [place.url, str(place.vectors), place.server_url]
    with subprocess.Popen([sys.executable, "-c", script, tmp_path / "b.dump", *addresses], cwd=ROOT) as restoring:
        wait_for(place, at)
        os.kill(restoring.pid, signal.SIGKILL)

    assert restoring.returncode == -signal.SIGKILL
    assert len(texts(place)) == 100
    restore(tmp_path / "b.dump", place)
    assert len(texts(place)) == MEMORIES


def wait_for(place: Place, statement: str) -> None:
    """Wait until a statement is at work, or was the last one."""
    seen = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND query LIKE %s"
    give_up_at = time.monotonic() + 60
    with psycopg.connect(place.url.replace("+psycopg", ""), autocommit=True) as connection:
        while connection.execute(seen, [f"%{statement}%"]).fetchone() == (0,):
            assert time.monotonic() < give_up_at, f"{statement} was never seen"
