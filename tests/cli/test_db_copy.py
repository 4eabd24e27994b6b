"""`db copy` as a person and as a script use it."""

import json
from collections.abc import Callable
from pathlib import Path

import psycopg
import pytest
from click.testing import Result

from app.caller import Caller
from app.store import usage_lock
from app.store.database import Database
from app.store.schema import migrations
from tests.postgresql import OWNER, SERVER
from tests.services import full_project

Command = Callable[..., Result]


@pytest.fixture
def filled(store: Database, owner: Caller) -> Database:
    """The database in the data folder, with a project in it and no open connection."""
    full_project.create(store, owner, rows=50)
    store.close()
    return store


def test_the_report_is_what_scripts_rely_on(command: Command, filled: Database, empty_database: str):
    """--json says for each table how many rows there are, how many were copied and whether both sides are identical."""
    copied = command("db", "copy", "--to", empty_database, "--json")

    report = json.loads(copied.output)
    memories = report.pop("tables")["memory_items"]
    assert copied.exit_code == 0
    assert len(memories.pop("hash")) == 32
    assert memories == {"rows": 40, "copied": 40, "same": True}
    assert report == {
        "ok": True,
        "dryRun": False,
        "finishedBefore": False,
        "vectors": "rebuild",
        "replacedRows": 0,
        "replaced": [],
        "refused": [],
        "faults": [],
    }


def test_the_report_is_a_table_for_people(command: Command, filled: Database, empty_database: str):
    """One line per table; the second time it says that nothing was left to copy."""
    first, second = command("db", "copy", "--to", empty_database), command("db", "copy", "--to", empty_database)

    assert first.output.splitlines()[0] == "Copied; vectors: every memory is embedded again"
    assert ["memory_items", "40", "40"] in [line.split()[:3] for line in first.output.splitlines()]
    assert second.output.splitlines()[0] == "Already copied: compared again, nothing copied"
    assert ["memory_items", "40", "0"] in [line.split()[:3] for line in second.output.splitlines()]


def test_a_dry_run_says_so_and_leaves_the_target_empty(command: Command, filled: Database, empty_database: str):
    """--dry-run reads everything and writes nothing."""
    result = command("db", "copy", "--to", empty_database, "--dry-run")

    assert result.output.startswith("Would copy;")
    assert migrations.current(empty_database) is None


def test_a_difference_is_named_and_exits_1(command: Command, filled: Database, empty_database: str):
    """A script must not go on with an incomplete copy."""
    command("db", "copy", "--to", empty_database)
    with connected(empty_database, OWNER) as connection:
        connection.execute("SET cmem.team_id = '*'")
        connection.execute("UPDATE agent_events SET event_type = 'other'")

    compared = command("db", "copy", "--to", empty_database)

    assert compared.exit_code == 1
    assert "DIFFERS" in next(line for line in compared.output.splitlines() if line.startswith("agent_events"))
    assert "what differs was rejected then, or has been written since" in compared.output


def test_the_servers_role_may_use_the_copy(command: Command, filled: Database, empty_database: str):
    """The one that the option names: it sees the rows and owns nothing."""
    command("db", "copy", "--to", empty_database, "--server-role", SERVER)

    with connected(empty_database, SERVER) as connection:
        connection.execute("SET cmem.team_id = '*'")
        assert connection.execute("SELECT count(*) FROM memory_items").fetchone() == (40,)


@pytest.mark.parametrize("vectors", ["keep", "rebuild"])
def test_vectors_are_kept_with_the_same_chroma_server(
    command: Command, filled: Database, empty_database: str, monkeypatch: pytest.MonkeyPatch, vectors: str
):
    """That is the default with CMEM_VECTORS=http."""
    monkeypatch.setenv("CMEM_VECTORS", "http")
    monkeypatch.setenv("CMEM_CHROMA_URL", "http://127.0.0.1:9")
    options = ("--vectors", "rebuild") if vectors == "rebuild" else ()

    report = json.loads(command("db", "copy", "--to", empty_database, "--json", *options).output)

    assert (report["ok"], report["vectors"], "vector_outbox" in report["tables"]) == (True, vectors, vectors == "keep")


@pytest.mark.sqlite
def test_a_running_server_is_refused_unless_a_snapshot_is_enough(
    command: Command, filled: Database, empty_database: str
):
    """Otherwise what the server writes after the copy has begun would be lost."""
    with usage_lock.shared(filled.url):
        refused = command("db", "copy", "--to", empty_database)
        taken = command("db", "copy", "--to", empty_database, "--snapshot")

    assert (refused.exit_code, refused.output) == (
        1,
        "Error: A server or another command uses this database: stop it first.\n",
    )
    assert migrations.current(empty_database) == migrations.head()
    assert taken.exit_code == 0, taken.output


def test_a_target_with_other_data_is_refused_in_one_line(command: Command, filled: Database, empty_database: str):
    """Nothing in the target is changed."""
    command("db", "copy", "--to", empty_database)
    command("teams", "create", "another")

    refused = command("db", "copy", "--to", empty_database)

    assert refused.exit_code == 1
    assert "another database, or of this one as it was" in refused.output
    assert len(refused.output.splitlines()) == 1


@pytest.mark.parametrize("url", ["sqlite:////tmp/other.db", "mysql://x/y", "somewhere"])
def test_a_target_other_than_postgresql_is_refused(command: Command, filled: Database, url: str):
    """The line says how to write the URL."""
    refused = command("db", "copy", "--to", url)

    assert refused.exit_code == 1
    assert "postgresql+psycopg://" in refused.output
    assert len(refused.output.splitlines()) == 1


def test_an_unreachable_target_is_one_line(command: Command, filled: Database, tmp_path: Path):
    """Without the password."""
    refused = command("db", "copy", "--to", f"postgresql+psycopg://owner:hush@/cmem?host={tmp_path}")

    assert refused.exit_code == 1
    assert refused.output.startswith("Error: ")
    assert "hush" not in refused.output
    assert "Traceback" not in refused.output


def connected(url: str, role: str) -> psycopg.Connection:
    address = url.replace("postgresql+psycopg://", "postgresql://", 1).replace(f"//{OWNER}@", f"//{role}@", 1)
    return psycopg.connect(address, autocommit=True)
