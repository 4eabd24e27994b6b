"""`doctor` finds what is wrong, and the command that it suggests repairs it; running that twice is safe."""

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
from tests.services import disk_faults
from tests.store import corruption as full_text
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
    """Return the findings of the doctor that are not ok, by check."""
    result = command("doctor", "--json")
    found = json.loads(result.stdout)
    assert result.exit_code == (0 if found["ok"] else 1)
    return {finding["what"]: finding for finding in found["findings"] if finding["state"] != "ok"}


def named(finding: dict) -> list[str]:
    """Return the command that a remedy suggests."""
    return finding["remedy"].split("`")[1].split()[1:]


def test_an_intact_server_has_no_findings(command: Command, filled: str):
    """The report fits on one screen, and the exit code is 0."""
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
def test_damaged_full_text_is_found_and_repaired(command: Command, store: Database, filled: str, harm, what: str):
    """By the suggested rebuild, which may run twice."""
    raw = RawWriter(store.path)
    harm(raw)
    raw.close()
    found = wrong(command)

    assert what in found
    for _ in range(2):
        assert command(*named(found[what])).exit_code == 0
    assert wrong(command) == {}


@pytest.mark.sqlite
def test_a_damaged_page_is_found_and_repaired_by_a_restore(
    command: Command, store: Database, filled: str, folder: Path, tmp_path: Path
):
    """From the newest backup."""
    command("backup", tmp_path / "b.db")
    store.close()
    disk_faults.overwrite_page_of_memories(store.path)

    found = wrong(command)
    assert "corrupt" in found.get("pages", found.get("database"))["detail"] or "pages" in found
    assert "restore" in json.dumps(found)
    for _ in range(2):
        assert command("restore", tmp_path / "b.db").exit_code == 0
    assert wrong(command) == {}


def test_an_older_database_is_found_and_upgraded(command: Command, store: Database, filled: str):
    """By the command for migrations."""
    store.close()
    command("db", "downgrade", "0002")
    found = wrong(command)

    assert list(found) == ["migrations"]
    command(*named(found["migrations"]))
    assert wrong(command) == {}


def test_memories_that_were_set_aside_are_found(command: Command, store: Database, filled: str):
    """With the first error, and the command that retries them."""
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE vector_outbox SET failed = true, last_error = 'no such model', attempts = 5")
    found = wrong(command)["outbox"]

    assert found["detail"] == "200 memories were set aside; first error: no such model"
    assert named(found) == ["vectors", "backfill", "--failed"]


def test_keys_about_to_expire_are_a_warning(command: Command, store: Database, owner: Caller):
    """Everything still works."""
    make_key(store, owner, expires_in_days=8)
    make_key(store, owner, expires_in_days=3)

    detail = wrong(command)["keys"]["detail"]

    assert detail.startswith("1 expire within 7 days")
    assert "(expires soon)" in detail


def test_unused_keys_are_a_warning(command: Command, store: Database, owner: Caller):
    """A forgotten key is a way in that nobody watches."""
    make_key(store, owner)
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE api_keys SET created_at_epoch = created_at_epoch - 7862400000")

    assert "(unused)" in wrong(command)["keys"]["detail"]


@pytest.mark.sqlite
def test_a_missing_database_is_found(command: Command, folder: Path):
    """With what to do."""
    (folder / "cmem.db").unlink()

    assert wrong(command)["database"]["remedy"] == "Check CMEM_DATA_DIR, or start `cmem-server serve` to create one."


def test_a_lost_vector_folder_is_found_and_repaired(
    command: Command, store: Database, filled: str, folder: Path, monkeypatch: pytest.MonkeyPatch
):
    """By the suggested command."""
    monkeypatch.setenv("CMEM_VECTORS", "embedded")
    with store.write() as connection:
        connection.exec_driver_sql("DELETE FROM memory_items WHERE seq > 5")
        connection.exec_driver_sql("DELETE FROM vector_outbox WHERE operation = 'delete'")
    assert command("vectors", "backfill").exit_code == 0
    assert wrong(command) == {}
    shutil.rmtree(folder / "chroma")

    found = wrong(command)

    assert found["vectors"]["detail"] == "1 projects have no vectors"
    for _ in range(2):
        assert command(*named(found["vectors"])).exit_code == 0
    assert wrong(command) == {}


def mirrored(command: Command, store: Database, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep five memories, and index them."""
    monkeypatch.setenv("CMEM_VECTORS", "embedded")
    with store.write() as connection:
        connection.exec_driver_sql("DELETE FROM memory_items WHERE seq > 5")
        connection.exec_driver_sql("DELETE FROM vector_outbox WHERE operation = 'delete'")
    assert command("vectors", "backfill").exit_code == 0
    assert wrong(command) == {}


def repair(command: Command, what: str) -> list[str]:
    """Run what the doctor suggests, twice, until it finds nothing; return its findings."""
    details = []
    while found := wrong(command).get(what):
        details.append(found["detail"])
        assert len(details) < 5
        for _ in range(2):
            assert command(*named(found)).exit_code == 0
    assert wrong(command) == {}
    return details


def test_collections_of_deleted_projects_are_found_and_deleted(
    command: Command, store: Database, owner: Caller, filled: str, monkeypatch: pytest.MonkeyPatch
):
    """As after a restore: the folder has more than the database. A dry run counts them."""
    mirrored(command, store, monkeypatch)
    bulk_delete.remove_project(store, owner, filled)
    with store.write() as connection:
        connection.exec_driver_sql("DELETE FROM vector_outbox")

    rehearsed = json.loads(command("vectors", "verify", "--dry-run", "--json").stdout)["ownerless"]

    assert rehearsed == 1
    assert repair(command, "vectors") == ["1 collections belong to no project"]


def test_a_vector_folder_of_another_server_is_found_and_repaired(
    command: Command, store: Database, owner: Caller, filled: str, monkeypatch: pytest.MonkeyPatch
):
    """The collection of every project is missing, and the existing ones belong to no project."""
    mirrored(command, store, monkeypatch)
    bulk_delete.remove_project(store, owner, filled)
    with store.write() as connection:
        project_id = projects.create(connection, owner, name="q").id
        new = memories.NewMemory(project_id=project_id, kind="manual", type="manual", text="a memory of another")
        memories.add(connection, owner, new)
        connection.exec_driver_sql("DELETE FROM vector_outbox")

    assert repair(command, "vectors") == ["1 projects have no vectors", "1 collections belong to no project"]


def test_an_outbox_full_of_failures_is_found_and_retried(
    command: Command, store: Database, filled: str, monkeypatch: pytest.MonkeyPatch
):
    """What was set aside is retried."""
    mirrored(command, store, monkeypatch)
    with store.write() as connection:
        connection.exec_driver_sql("UPDATE memory_items SET text = text || ' again'")
        connection.exec_driver_sql("UPDATE vector_outbox SET failed = true, last_error = 'no such model', attempts = 5")

    assert repair(command, "outbox") == ["5 memories were set aside; first error: no such model"]
    assert json.loads(command("vectors", "verify", "--dry-run", "--json").stdout)["stale"] == 0


def test_a_low_limit_of_open_files_is_found(command: Command, filled: str, monkeypatch: pytest.MonkeyPatch):
    """Each collection of the embedded index needs four."""
    monkeypatch.setenv("CMEM_VECTORS", "embedded")
    monkeypatch.setattr(server, "raise_open_files_limit", lambda: 256)

    assert wrong(command)["open files"]["detail"] == "the limit is 256, the vector index needs 512"
