"""Backups hold what was acknowledged, restores are whole or did not happen."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from app.caller import Caller, server_owner
from app.errors import Conflict
from app.services import backup, integrity, memories, projects, teams
from app.services.backup import BackupError, Place
from app.store import presence
from app.store.database import Database
from tests.conftest import Server, Tenant, client

WORD = "lighthouse"


@pytest.fixture
def place(database: Database) -> Place:
    """The data of a server with 300 memories."""
    with database.write() as connection:
        caller = server_owner().within(teams.create(connection, server_owner(), name="a").id)
        project_id = projects.create(connection, caller, name="p").id
    remember(database, caller, project_id, range(300))
    return Place(database.path, database.path.with_name("chroma"))


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
    with closing(sqlite3.connect(place.database)) as connection:
        return [text for (text,) in connection.execute("SELECT text FROM memory_items ORDER BY seq")]


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
    with database.write() as connection:
        connection.exec_driver_sql("DELETE FROM memory_items WHERE seq > 100")
    database.close()

    restore(tmp_path / "b.db", place)

    assert len(texts(place)) == 300
    assert integrity.faults(database) == []
    assert place.database.stat().st_mode & 0o777 == 0o600
    assert list(tmp_path.glob("*restor*")) == []


def test_a_stale_log_beside_the_database_is_not_replayed(place: Place, database: Database, tmp_path: Path):
    """The -wal of the old database belongs to it alone."""
    write(place, tmp_path / "b.db")
    log = place.database.with_name("cmem.db-wal")
    with closing(sqlite3.connect(place.database)) as open_still:
        open_still.execute("DELETE FROM memory_items")
        open_still.commit()
        stale = log.read_bytes()
    database.close()
    log.write_bytes(stale)

    restore(tmp_path / "b.db", place)

    assert len(texts(place)) == 300


def test_every_row_acknowledged_before_a_backup_is_in_it(server: Server, team: Tenant, tmp_path: Path):
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
        place = Place(server.database.path, tmp_path / "chroma")
        write(place, tmp_path / "backup.db")
        stop.set()
    for writer in writers:
        writer.result()
    elsewhere = Place(tmp_path / "elsewhere" / "cmem.db", tmp_path / "elsewhere" / "chroma")

    restore(tmp_path / "backup.db", elsewhere)

    with closing(Database(elsewhere.url)) as restored:
        assert integrity.faults(restored) == []
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


def lose_full_text(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("DELETE FROM memory_items_fts_data WHERE id > 10")
        connection.commit()


def other_file(path: Path) -> None:
    path.write_text("not a database, " * 1_000)


@pytest.mark.parametrize(
    "harm",
    [flip_a_byte, lose_full_text, other_file, without_manifest(lose_full_text), without_manifest(other_file)],
)
def test_a_damaged_backup_is_refused_and_the_data_stay(place: Place, tmp_path: Path, harm: Callable[[Path], None]):
    """Nothing is touched before the new file has passed its checks."""
    write(place, tmp_path / "b.db")
    harm(tmp_path / "b.db")

    with pytest.raises(BackupError):
        restore(tmp_path / "b.db", place)

    assert len(texts(place)) == 300


def test_a_restore_is_refused_while_anybody_uses_the_data(place: Place, tmp_path: Path):
    """A server, or another command."""
    write(place, tmp_path / "b.db")

    with presence.using(place.url), pytest.raises(Conflict, match="stop it first"):
        restore(tmp_path / "b.db", place)


def test_nobody_begins_to_use_data_that_are_being_restored(place: Place):
    """A server that starts meanwhile would hold the old file."""
    with presence.alone(place.url), pytest.raises(Conflict, match="being restored"), presence.using(place.url):
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
def test_a_killed_restore_leaves_whole_data_and_ends_well_the_next_time(
    place: Place, database: Database, tmp_path, step
):
    """kill -9 at any step: what stands is the old or the new, and running it again gives the new."""
    write(place, tmp_path / "b.db")
    with database.write() as connection:
        connection.exec_driver_sql("DELETE FROM memory_items WHERE seq > 100")
    database.close()
    script = (
        "import os, sys; from pathlib import Path; from app.services import backup\n"
        "place = backup.Place(Path(sys.argv[2]), Path(sys.argv[2]).with_name('chroma'))\n"
        "die = lambda step: step == sys.argv[3] and os.kill(os.getpid(), 9)\n"
        "backup.restore(Path(sys.argv[1]), place, progress=die)"
    )
    arguments = [sys.executable, "-c", script, str(tmp_path / "b.db"), str(place.database), step]
    died = subprocess.run(arguments, env=os.environ | {"PYTHONPATH": str(Path(backup.__file__).parents[2])})

    assert died.returncode == -signal.SIGKILL
    assert len(texts(place)) in (100, 300)

    restore(tmp_path / "b.db", place)
    assert len(texts(place)) == 300
    assert list(tmp_path.glob("*restor*")) == []
