"""Backups hold what was acknowledged, restores are whole or did not happen."""

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
from app.services.backup.backup import Place
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
from tests.stores import Stores, of_folder

WORD = "lighthouse"


@pytest.fixture
def place(stores: Stores, database: Database, tmp_path: Path) -> Place:
    """The data of a server with 300 memories."""
    with database.write() as connection:
        caller = server_owner().within(teams.create(connection, server_owner(), name="a").id)
        project_id = projects.create(connection, caller, name="p").id
    remember(database, caller, project_id, range(300))
    database.close()
    return place_of(stores, tmp_path)


@pytest.fixture
def elsewhere(stores: Stores, tmp_path: Path) -> Iterator[Place]:
    """The place of another server, which has no data yet."""
    folder = tmp_path / "elsewhere"
    folder.mkdir()
    with of_folder(stores, folder):
        yield place_of(stores, folder)


def place_of(stores: Stores, folder: Path) -> Place:
    settings = Settings(_env_file=None, data_dir=folder, **stores.settings(folder))  # type: ignore[call-arg, arg-type]
    return Place(settings.owner_database_url, folder / "chroma", settings.resolved_database_url)


def remember(database: Database, caller: Caller, project_id: str, numbers: range) -> None:
    with database.write() as connection:
        for number in numbers:
            new = memories.NewMemory(project_id=project_id, kind="manual", type="manual", text=f"{WORD} {number}")
            memories.add(connection, caller, new)


def write(place: Place, to: Path, **options: bool) -> backup.Manifest:
    return backup.write(place, to, with_vectors=options.get("with_vectors", False), progress=lambda done, total: None)


def restore(from_: Path, place: Place) -> None:
    backup.restore(from_, place, progress=lambda step: None)


def texts(place: Place) -> list[str]:
    with closing(Database(place.server_url)) as database, database.read() as connection:
        return list(connection.exec_driver_sql("SELECT text FROM memory_items ORDER BY seq").scalars())


def lose_most(place: Place) -> None:
    with closing(Database(place.server_url)) as database, database.write() as connection:
        connection.exec_driver_sql("DELETE FROM memory_items WHERE seq > 100")


def test_a_backup_is_private_and_says_what_it_holds(place: Place, tmp_path: Path):
    """Only its owner may read it; the manifest counts its rows."""
    manifest = write(place, tmp_path / "b.db")

    assert manifest.rows["memory_items"] == 300
    for path in (tmp_path / "b.db", backup.manifest_of(tmp_path / "b.db")):
        assert path.stat().st_mode & 0o777 == 0o600
    assert sorted(path.name for path in tmp_path.glob("b.db*")) == ["b.db", "b.db.manifest.json"]


def test_a_restored_server_is_as_it_was(place: Place, database: Database, tmp_path: Path):
    """What was written after the backup is gone, what stood then is there and is found."""
    write(place, tmp_path / "b.db")
    lose_most(place)

    restore(tmp_path / "b.db", place)

    assert len(texts(place)) == 300
    assert fulltext_check.faults(database) == []
    assert list(tmp_path.glob("*restor*")) == []


@pytest.mark.sqlite
def test_a_restored_file_is_private(place: Place, database: Database, tmp_path: Path):
    """As the one was that it replaces."""
    write(place, tmp_path / "b.db")
    restore(tmp_path / "b.db", place)

    assert database.path.stat().st_mode & 0o777 == 0o600


def test_a_restored_server_goes_on(place: Place, database: Database, tmp_path: Path):
    """Its role may write, and what is written is numbered and indexed behind what was there."""
    write(place, tmp_path / "b.db")
    restore(tmp_path / "b.db", place)
    with database.read() as connection:
        team_id, project_id = connection.exec_driver_sql("SELECT team_id, id FROM projects").one()

    remember(database, server_owner().within(team_id), project_id, range(300, 310))

    assert texts(place)[300:] == [f"{WORD} {number}" for number in range(300, 310)]
    assert fulltext_check.faults(database) == []


@pytest.mark.sqlite
def test_a_stale_log_beside_the_database_is_not_replayed(place: Place, database: Database, tmp_path: Path):
    """The -wal of the old database belongs to it alone."""
    write(place, tmp_path / "b.db")
    log = database.path.with_name("cmem.db-wal")
    with closing(sqlite3.connect(database.path)) as open_still:
        open_still.execute("DELETE FROM memory_items")
        open_still.commit()
        stale = log.read_bytes()
    database.close()
    log.write_bytes(stale)

    restore(tmp_path / "b.db", place)

    assert len(texts(place)) == 300


def test_every_row_acknowledged_before_a_backup_is_in_it(
    server: Server, team: Tenant, elsewhere: Place, tmp_path: Path
):
    """Sixteen clients write meanwhile; the copy is of one moment, and whole."""
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
        place = Place(served.owner_database_url, tmp_path / "chroma", served.resolved_database_url)
        write(place, tmp_path / "backup.db")
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
def test_a_damaged_backup_is_refused_and_the_data_stay(place: Place, tmp_path: Path, harm: Callable[[Path], None]):
    """Nothing is touched before the new file has passed its checks."""
    write(place, tmp_path / "b.db")
    harm(tmp_path / "b.db")

    with pytest.raises(BackupError):
        restore(tmp_path / "b.db", place)

    assert len(texts(place)) == 300


def lose_full_text(url: str) -> None:
    table = "memory_items_fts" if url.startswith("postgresql") else "memory_items_fts_docsize"
    with closing(Database(url)) as database, database.write() as connection:
        connection.exec_driver_sql(f"DELETE FROM {table}")


def test_what_is_not_whole_is_not_backed_up(place: Place, tmp_path: Path):
    """Full text that has drifted would be found out by the restore, when it is too late."""
    lose_full_text(place.url)

    with pytest.raises(BackupError, match="full text differs"):
        write(place, tmp_path / "b.db")

    assert not (tmp_path / "b.db").exists()


@pytest.mark.sqlite
@pytest.mark.parametrize("has_manifest", [True, False])
def test_a_backup_whose_full_text_was_lost_is_refused(place: Place, tmp_path: Path, has_manifest: bool):
    """Also by itself."""
    write(place, tmp_path / "b.db")
    lose_full_text(f"sqlite:///{tmp_path / 'b.db'}")
    if not has_manifest:
        backup.manifest_of(tmp_path / "b.db").unlink()

    with pytest.raises(BackupError):
        restore(tmp_path / "b.db", place)

    assert len(texts(place)) == 300


def test_a_backup_of_another_kind_of_database_is_refused(place: Place, tmp_path: Path):
    """The line says which it is."""
    manifest = write(place, tmp_path / "b.db")
    other = "sqlite" if manifest.dialect == "postgresql" else "postgresql"
    of_other = msgspec.json.encode(msgspec.structs.replace(manifest, dialect=other))
    backup.manifest_of(tmp_path / "b.db").write_bytes(of_other)

    with pytest.raises(BackupError, match=f"b.db is a backup of {other}, the database is {place.dialect}"):
        restore(tmp_path / "b.db", place)


def test_a_restore_that_fails_its_last_check_leaves_the_data(place: Place, tmp_path: Path, monkeypatch):
    """The old ones were kept until then."""
    write(place, tmp_path / "b.db")
    lose_most(place)
    place.vectors.mkdir()
    lock = FolderLock(place.vectors.with_name("chroma.lock"), owner_name="a server")
    lock.acquire()

    with pytest.raises(BackupError, match="Stop it"):
        restore(tmp_path / "b.db", place)
    lock.release()

    assert len(texts(place)) == 100
    restore(tmp_path / "b.db", place)
    assert len(texts(place)) == 300


def test_a_restore_is_refused_while_anybody_uses_the_data(place: Place, tmp_path: Path):
    """A server, or another command."""
    write(place, tmp_path / "b.db")

    with usage_lock.using(place.url), pytest.raises(Conflict, match="stop it first"):
        restore(tmp_path / "b.db", place)


def test_nobody_begins_to_use_data_that_are_being_restored(place: Place):
    """A server that starts meanwhile would hold the old file."""
    with usage_lock.alone(place.url), pytest.raises(Conflict, match="being restored"), usage_lock.using(place.url):
        pass


def test_vectors_come_along_on_request(place: Place, tmp_path: Path):
    """And are as private as the rest; without them the old ones go, because they would be of other memories."""
    place.vectors.mkdir()
    (place.vectors / "index").write_text("vectors")
    write(place, tmp_path / "b.db", with_vectors=True)
    write(place, tmp_path / "c.db")
    (place.vectors / "index").write_text("later vectors")

    restore(tmp_path / "b.db", place)
    assert (place.vectors / "index").read_text() == "vectors"
    assert backup.vectors_of(tmp_path / "b.db").stat().st_mode & 0o777 == 0o600

    restore(tmp_path / "c.db", place)
    assert not place.vectors.exists()


@pytest.mark.parametrize("step", ["checking the backup", "putting it in place", "checking it in place"])
def test_a_killed_restore_leaves_whole_data_and_ends_well_the_next_time(place: Place, tmp_path: Path, step: str):
    """kill -9 at any step: what stands is the old or the new, and running it again gives the new."""
    write(place, tmp_path / "b.db")
    lose_most(place)
    script = (
        "import os, sys; from pathlib import Path; from app.services import backup\n"
        "backup_file, step, url, vectors, server_url = sys.argv[1:]\n"
        "place = backup.Place(url, Path(vectors), server_url)\n"
        "die = lambda at: at == step and os.kill(os.getpid(), 9)\n"
        "backup.restore(Path(backup_file), place, progress=die)"
    )
    addresses = [place.url, str(place.vectors), place.server_url]
    arguments = [sys.executable, "-c", script, str(tmp_path / "b.db"), step, *addresses]
    surroundings = os.environ | {"PYTHONPATH": str(ROOT)}
    died = subprocess.run(arguments, env=surroundings, timeout=60)

    assert died.returncode == -signal.SIGKILL
    assert len(texts(place)) in (100, 300)

    restore(tmp_path / "b.db", place)
    assert len(texts(place)) == 300
    assert list(tmp_path.glob("*restor*")) == []
