"""Backups hold every acknowledged row, and restores are complete or do not happen."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import msgspec
import pytest

from app.caller import Caller, server_owner
from app.errors import Conflict
from app.services.backup import backup
from app.services.backup.backup import DataLocation
from app.services.identity import teams
from app.services.memories import memories
from app.services.operations import fulltext_check
from app.services.projects import projects
from app.settings import Settings
from app.store import usage_lock
from app.store.backup import BackupError
from app.store.database import Database
from app.vectors.chroma.folder import FolderLock
from tests import ROOT
from tests.conftest import Server, Tenant, client
from tests.databases import Databases, database_url

WORD = "lighthouse"


@pytest.fixture
def location(databases: Databases, database: Database, tmp_path: Path) -> DataLocation:
    """The data of a server with 300 memories."""
    with database.write() as connection:
        caller = server_owner().within(teams.create(connection, server_owner(), name="a").id)
        project_id = projects.create(connection, caller, name="p").id
    remember(database, caller, project_id, range(300))
    database.close()
    return location_of(databases, tmp_path)


@pytest.fixture
def elsewhere(databases: Databases, tmp_path: Path) -> Iterator[DataLocation]:
    """The data location of another server, which has no data yet."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    with database_url(databases, folder):
        yield location_of(databases, folder)


def location_of(databases: Databases, folder: Path) -> DataLocation:
    settings = Settings(_env_file=None, data_dir=folder, **databases.settings(folder))  # type: ignore[call-arg, arg-type]
    return DataLocation(settings.owner_database_url, folder / "chroma", settings.resolved_database_url)


def remember(database: Database, caller: Caller, project_id: str, numbers: range) -> None:
    with database.write() as connection:
        for number in numbers:
            new = memories.NewMemory(project_id=project_id, kind="manual", type="manual", text=f"{WORD} {number}")
            memories.add(connection, caller, new)


def write(location: DataLocation, to: Path, **options: bool) -> backup.Manifest:
    return backup.write(
        location, to, with_vectors=options.get("with_vectors", False), progress=lambda done, total: None
    )


def restore(from_: Path, location: DataLocation) -> None:
    backup.restore(from_, location, progress=lambda step: None)


def texts(location: DataLocation) -> list[str]:
    with closing(Database(location.server_url)) as database, database.read() as connection:
        return list(connection.exec_driver_sql("SELECT text FROM memory_items ORDER BY seq").scalars())


def lose_most(location: DataLocation) -> None:
    with closing(Database(location.server_url)) as database, database.write() as connection:
        connection.exec_driver_sql("DELETE FROM memory_items WHERE seq > 100")


def test_backup_is_private_and_counts_its_rows(location: DataLocation, tmp_path: Path):
    """Only its owner may read it; the manifest has the row counts."""
    manifest = write(location, tmp_path / "b.db")

    assert manifest.rows["memory_items"] == 300
    for path in (tmp_path / "b.db", backup.manifest_of(tmp_path / "b.db")):
        assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.glob("b.db*")) == ["b.db", "b.db.manifest.json"]


def test_restored_server_is_as_it_was(location: DataLocation, database: Database, tmp_path: Path):
    """Later writes are gone, and everything from before is there and is found."""
    write(location, tmp_path / "b.db")
    lose_most(location)

    restore(tmp_path / "b.db", location)

    assert len(texts(location)) == 300
    assert fulltext_check.faults(database) == []
    assert list(tmp_path.glob("*restor*")) == []


@pytest.mark.sqlite
def test_restored_file_is_private(location: DataLocation, database: Database, tmp_path: Path):
    """Like the one that it replaces."""
    write(location, tmp_path / "b.db")
    restore(tmp_path / "b.db", location)

    assert database.path.stat().st_mode & 0o777 == 0o600


def test_restored_server_accepts_writes(location: DataLocation, database: Database, tmp_path: Path):
    """Its role may write, and new memories are numbered and indexed after the restored ones."""
    write(location, tmp_path / "b.db")
    restore(tmp_path / "b.db", location)
    with database.read() as connection:
        team_id, project_id = connection.exec_driver_sql("SELECT team_id, id FROM projects").one()

    remember(database, server_owner().within(team_id), project_id, range(300, 310))

    assert texts(location)[300:] == [f"{WORD} {number}" for number in range(300, 310)]
    assert fulltext_check.faults(database) == []


@pytest.mark.sqlite
def test_stale_wal_is_not_replayed(location: DataLocation, database: Database, tmp_path: Path):
    """The -wal file of the old database is discarded with it."""
    write(location, tmp_path / "b.db")
    log = database.path.with_name("cmem.db-wal")
    with closing(sqlite3.connect(database.path)) as still_open:
        still_open.execute("DELETE FROM memory_items")
        still_open.commit()
        stale = log.read_bytes()
    database.close()
    log.write_bytes(stale)

    restore(tmp_path / "b.db", location)

    assert len(texts(location)) == 300


def test_backup_has_every_row_that_was_acknowledged_before(
    server: Server, team: Tenant, elsewhere: DataLocation, tmp_path: Path
):
    """Sixteen clients write meanwhile; the copy is a consistent snapshot."""
    acknowledged: list[str] = []
    stop = threading.Event()

    def write_on(number: int) -> None:
        with client(server, team.api_key) as http:
            for count in range(10_000):
                if stop.is_set():
                    return
                body = {"projectId": team.project_id, "content": f"client {number} wrote {count}"}
                acknowledged.append(http.post("/v1/memories", json=body).json()["memory"]["id"])

    with ThreadPoolExecutor(16) as pool:
        writers = [pool.submit(write_on, number) for number in range(16)]
        while len(acknowledged) < 100:
            stop.wait(0.01)
        before = set(acknowledged)
        served = server.settings
        location = DataLocation(served.owner_database_url, tmp_path / "chroma", served.resolved_database_url)
        write(location, tmp_path / "backup.db")
        stop.set()
    for writer in writers:
        writer.result()

    restore(tmp_path / "backup.db", elsewhere)

    with closing(Database(elsewhere.server_url)) as restored:
        assert fulltext_check.faults(restored) == []
        with restored.read() as connection:
            there = set(connection.exec_driver_sql("SELECT id FROM memory_items").scalars())
    assert before <= there


def flip_a_byte(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 0xFF
    path.write_bytes(content)


def without_manifest(damage: Callable[[Path], None]) -> Callable[[Path], None]:
    def harm(path: Path) -> None:
        backup.manifest_of(path).unlink()
        damage(path)

    return harm


def cut_short(path: Path) -> None:
    os.truncate(path, path.stat().st_size * 2 // 3)


def other_file(path: Path) -> None:
    path.write_text("not a database, " * 1_000)


@pytest.mark.parametrize(
    "harm",
    [flip_a_byte, cut_short, other_file, without_manifest(cut_short), without_manifest(other_file)],
)
def test_damaged_backup_is_rejected_and_the_data_kept(
    location: DataLocation, tmp_path: Path, harm: Callable[[Path], None]
):
    """Nothing is touched before the new file has passed its checks."""
    write(location, tmp_path / "b.db")
    harm(tmp_path / "b.db")

    with pytest.raises(BackupError):
        restore(tmp_path / "b.db", location)

    assert len(texts(location)) == 300


def lose_full_text(url: str) -> None:
    table = "memory_items_fts" if url.startswith("postgresql") else "memory_items_fts_docsize"
    with closing(Database(url)) as database, database.write() as connection:
        connection.exec_driver_sql(f"DELETE FROM {table}")


def test_damaged_database_is_not_backed_up(location: DataLocation, tmp_path: Path):
    """Otherwise the restore would find that full text has drifted, when it is too late."""
    lose_full_text(location.url)

    with pytest.raises(BackupError, match="full text differs"):
        write(location, tmp_path / "b.db")

    assert not (tmp_path / "b.db").exists()


@pytest.mark.sqlite
@pytest.mark.parametrize("has_manifest", [True, False])
def test_backup_without_its_full_text_is_rejected(location: DataLocation, tmp_path: Path, has_manifest: bool):
    """Even without a manifest."""
    write(location, tmp_path / "b.db")
    lose_full_text(f"sqlite:///{tmp_path / 'b.db'}")
    if not has_manifest:
        backup.manifest_of(tmp_path / "b.db").unlink()

    with pytest.raises(BackupError):
        restore(tmp_path / "b.db", location)

    assert len(texts(location)) == 300


def test_backup_of_another_dialect_is_rejected(location: DataLocation, tmp_path: Path):
    """The error names both dialects."""
    manifest = write(location, tmp_path / "b.db")
    other = "sqlite" if manifest.dialect == "postgresql" else "postgresql"
    of_other = msgspec.json.encode(msgspec.structs.replace(manifest, dialect=other))
    backup.manifest_of(tmp_path / "b.db").write_bytes(of_other)

    with pytest.raises(BackupError, match=f"b.db is a backup of {other}, the database is {location.dialect}"):
        restore(tmp_path / "b.db", location)


def test_restore_that_fails_its_last_check_keeps_the_data(location: DataLocation, tmp_path: Path, monkeypatch):
    """The old data is kept until then."""
    write(location, tmp_path / "b.db")
    lose_most(location)
    location.vectors.mkdir()
    lock = FolderLock(location.vectors.with_name("chroma.lock"), owner_name="a server")
    lock.acquire()

    with pytest.raises(BackupError, match="Stop it"):
        restore(tmp_path / "b.db", location)
    lock.release()

    assert len(texts(location)) == 100
    restore(tmp_path / "b.db", location)
    assert len(texts(location)) == 300


def test_restore_is_rejected_while_the_data_is_in_use(location: DataLocation, tmp_path: Path):
    """By a server or another command."""
    write(location, tmp_path / "b.db")

    with usage_lock.shared(location.url), pytest.raises(Conflict, match="stop it first"):
        restore(tmp_path / "b.db", location)


def test_data_cannot_be_used_during_a_restore(location: DataLocation):
    """A server that starts meanwhile would open the old file."""
    with (
        usage_lock.exclusive(location.url),
        pytest.raises(Conflict, match="being restored"),
        usage_lock.shared(location.url),
    ):
        pass


def test_vectors_are_included_on_request(location: DataLocation, tmp_path: Path):
    """They are as private as the rest; without them the old ones are deleted, as they belong to other memories."""
    location.vectors.mkdir()
    (location.vectors / "index").write_text("vectors")
    write(location, tmp_path / "b.db", with_vectors=True)
    write(location, tmp_path / "c.db")
    (location.vectors / "index").write_text("later vectors")

    restore(tmp_path / "b.db", location)
    assert (location.vectors / "index").read_text() == "vectors"
    assert backup.vectors_of(tmp_path / "b.db").stat().st_mode & 0o777 == 0o600

    restore(tmp_path / "c.db", location)
    assert not location.vectors.exists()


@pytest.mark.parametrize("step", ["checking the backup", "replacing the data", "checking the restored data"])
def test_killed_restore_leaves_complete_data_and_can_be_repeated(location: DataLocation, tmp_path: Path, step: str):
    """kill -9 at any step leaves the old or the new data, and running it again gives the new."""
    write(location, tmp_path / "b.db")
    lose_most(location)
    script = (
        "import os, sys; from pathlib import Path; from app.services.backup import backup\n"
        "backup_file, step, url, vectors, server_url = sys.argv[1:]\n"
        "location = backup.DataLocation(url, Path(vectors), server_url)\n"
        "die = lambda at: at == step and os.kill(os.getpid(), 9)\n"
        "backup.restore(Path(backup_file), location, progress=die)"
    )
    addresses = [location.url, str(location.vectors), location.server_url]
    arguments = [sys.executable, "-c", script, str(tmp_path / "b.db"), step, *addresses]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    died = subprocess.run(arguments, env=environment, timeout=60)

    assert died.returncode == -signal.SIGKILL
    assert len(texts(location)) in (100, 300)

    restore(tmp_path / "b.db", location)
    assert len(texts(location)) == 300
    assert list(tmp_path.glob("*restor*")) == []
