"""`doctor` names what is wrong, and the command that it names mends it; twice is safe."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from click.testing import Result

from app.caller import Caller
from app.services.deletion import bulk_delete
from app.services.memories import memories
from app.services.projects import projects
from app.store.database import Database
from app.vectors.chroma import server
from tests.conftest import make_key
from tests.services import damage
from tests.store import damage as full_text
from tests.store.raw_writer import RawWriter

Command = Callable[..., Result]


@pytest.fixture
def filled(store: Database, owner: Caller) -> str:
    """A project with 200 memories."""
    with store.write() as connection:
        project_id = projects.create(connection, owner, name="p").id
        for number in range(200):
            text = f"{number} a memory to damage, of a lighthouse keeper " * 5
            new = memories.NewMemory(project_id=project_id, kind="manual", type="manual", text=text)
            memories.add(connection, owner, new)
    return project_id


def wrong(command: Command) -> dict[str, dict]:
    """Return what the doctor finds wrong, by what it looked at."""
    result = command("doctor", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == (0 if found["ok"] else 1)
    return {finding["what"]: finding for finding in found["findings"] if finding["state"] != "ok"}


def named(finding: dict) -> list[str]:
    """Return the command that a remedy names."""
    return finding["remedy"].split("`")[1].split()[1:]


def test_a_whole_server_has_nothing_wrong(command: Command, filled: str):
    """One screen, and zero."""
    result = command("doctor")

    assert result.exit_code == 0
    assert len(result.output.splitlines()) < 24
    assert wrong(command) == {}


@pytest.mark.sqlite
@pytest.mark.parametrize(
    ("harm", "what"),
    [
        (full_text.dropped_trigger, "triggers"),
        (full_text.dropped_table, "triggers"),
        (full_text.deleted_index, "full text"),
        (full_text.missing_shadow, "full text"),
        (full_text.missed_changes, "full text"),
    ],
)
def test_damage_of_full_text_is_named_and_mended(command: Command, store: Database, filled: str, harm, what: str):
    """By the rebuild that is named, which may run twice."""
    raw = RawWriter(store.path)
    harm(raw)
    raw.close()
    found = wrong(command)

    assert what in found
    for _ in range(2):
        assert command(*named(found[what])).exit_code == 0
    assert wrong(command) == {}


@pytest.mark.sqlite
def test_a_damaged_page_is_named_and_a_backup_mends_it(
    command: Command, store: Database, filled: str, folder: Path, tmp_path: Path
):
    """The newest backup takes its place."""
    command("backup", tmp_path / "b.db")
    store.close()
    damage.a_page_of_memories(store.path)

    found = wrong(command)
    assert "corrupt" in found.get("pages", found.get("database"))["detail"] or "pages" in found
    assert "restore" in json.dumps(found)
    for _ in range(2):
        assert command("restore", tmp_path / "b.db").exit_code == 0
    assert wrong(command) == {}


def test_a_database_behind_the_code_is_named_and_mended(command: Command, store: Database, filled: str):
    """Migrations have a command of their own."""
    store.close()
    command("db", "downgrade", "0002")
    found = wrong(command)

    assert list(found) == ["migrations"]
    command(*named(found["migrations"]))
    assert wrong(command) == {}


def test_memories_that_were_set_aside_are_named(command: Command, store: Database, filled: str):
    """With the reason of the first, and the command that takes them up again."""
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE vector_outbox SET failed = true, last_error = 'no such model', attempts = 5")
    found = wrong(command)["outbox"]

    assert found["detail"] == "200 memories were set aside, the first for: no such model"
    assert named(found) == ["vectors", "backfill", "--failed"]


def test_keys_about_to_expire_are_named(command: Command, store: Database, owner: Caller):
    """A warning: everything still works."""
    make_key(store, owner, expires_in_days=8)
    make_key(store, owner, expires_in_days=3)

    detail = wrong(command)["keys"]["detail"]

    assert detail.startswith("1 expire within 7 days")
    assert "(expires soon)" in detail


def test_keys_that_nobody_uses_are_named(command: Command, store: Database, owner: Caller):
    """A key that was forgotten is a way in that nobody watches."""
    make_key(store, owner)
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE api_keys SET created_at_epoch = created_at_epoch - 7862400000")

    assert "(unused)" in wrong(command)["keys"]["detail"]


@pytest.mark.sqlite
def test_no_database_at_all_is_named(command: Command, folder: Path):
    """With how to begin."""
    (folder / "cmem.db").unlink()

    assert wrong(command)["database"]["remedy"] == "run `cmem-server serve`"


def test_a_lost_vector_folder_is_named_and_mended(
    command: Command, store: Database, filled: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """And memories that were set aside come in, by the commands that are named."""
    monkeypatch.setenv("CMEM_VECTORS", "embedded")
    with store.write() as connection:
        connection.exec_driver_sql("DELETE FROM memory_items WHERE seq > 5")
        connection.exec_driver_sql("DELETE FROM vector_outbox WHERE operation = 'delete'")
    assert command("vectors", "backfill").exit_code == 0
    assert wrong(command) == {}
    shutil.rmtree(folder / "chroma")

    found = wrong(command)

    assert found["vectors"]["detail"] == "1 projects have none"
    for _ in range(2):
        assert command(*named(found["vectors"])).exit_code == 0
    assert wrong(command) == {}


def mirrored(command: Command, store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave five memories, and mirror them."""
    monkeypatch.setenv("CMEM_VECTORS", "embedded")
    with store.write() as connection:
        connection.exec_driver_sql("DELETE FROM memory_items WHERE seq > 5")
        connection.exec_driver_sql("DELETE FROM vector_outbox WHERE operation = 'delete'")
    assert command("vectors", "backfill").exit_code == 0
    assert wrong(command) == {}


def mended(command: Command, what: str) -> list[str]:
    """Run what the doctor names, twice, until nothing is wrong; return what it said."""
    said = []
    while found := wrong(command).get(what):
        said.append(found["detail"])
        assert len(said) < 5
        for _ in range(2):
            assert command(*named(found)).exit_code == 0
    assert wrong(command) == {}
    return said


def test_collections_of_projects_that_are_no_more_are_named_and_mended(
    command: Command, store: Database, owner: Caller, filled: str, monkeypatch: pytest.MonkeyPatch
):
    """As after a restore: the folder knows more than the database. A rehearsal counts them."""
    mirrored(command, store, monkeypatch)
    bulk_delete.remove_project(store, owner, filled)
    with store.write() as connection:
        connection.exec_driver_sql("DELETE FROM vector_outbox")

    rehearsed = json.loads(command("vectors", "verify", "--dry-run", "--json").stdout)["ownerless"]

    assert rehearsed == 1
    assert mended(command, "vectors") == ["1 collections are of no project here"]


def test_a_folder_of_another_server_is_named_and_mended(
    command: Command, store: Database, owner: Caller, filled: str, monkeypatch: pytest.MonkeyPatch
):
    """Every project's collection is missing, and none that is there belongs to anybody."""
    mirrored(command, store, monkeypatch)
    bulk_delete.remove_project(store, owner, filled)
    with store.write() as connection:
        project_id = projects.create(connection, owner, name="q").id
        new = memories.NewMemory(project_id=project_id, kind="manual", type="manual", text="a memory of another")
        memories.add(connection, owner, new)
        connection.exec_driver_sql("DELETE FROM vector_outbox")

    assert mended(command, "vectors") == ["1 projects have none", "1 collections are of no project here"]


def test_an_outbox_full_of_failures_is_named_and_mended(
    command: Command, store: Database, filled: str, monkeypatch: pytest.MonkeyPatch
):
    """What was set aside is taken up again."""
    mirrored(command, store, monkeypatch)
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE memory_items SET text = text || ' again'")
        connection.exec_driver_sql("UPDATE vector_outbox SET failed = true, last_error = 'no such model', attempts = 5")

    assert mended(command, "outbox") == ["5 memories were set aside, the first for: no such model"]
    assert json.loads(command("vectors", "verify", "--dry-run", "--json").stdout)["stale"] == 0


def test_too_few_open_files_are_named(command: Command, filled: str, monkeypatch: pytest.MonkeyPatch):
    """Each collection of the embedded index takes four."""
    monkeypatch.setenv("CMEM_VECTORS", "embedded")
    monkeypatch.setattr(server, "raise_open_files_limit", lambda: 256)

    assert wrong(command)["open files"]["detail"] == "256 are allowed, the vector index needs 512"
