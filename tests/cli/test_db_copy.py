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
from tests.services import everything

Command = Callable[..., Result]


@pytest.fixture
def filled(store: Database, owner: Caller) -> Database:
    """The database of the data folder, with a project in it and nobody connected."""
    everything.fill(store, owner, rows=50)
    store.close()
    return store


def test_the_report_is_what_scripts_rely_on(command: Command, filled: Database, unborn: str):
    """--json says for each table what there is, what was copied and whether both sides are the same."""
    copied = command("db", "copy", "--to", unborn, "--json")

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


def test_people_get_a_table(command: Command, filled: Database, unborn: str):
    """One line for each table; the second time it says that there was nothing left."""
    first, second = command("db", "copy", "--to", unborn), command("db", "copy", "--to", unborn)

    assert first.output.splitlines()[0] == "Copied; vectors: every memory is mirrored anew"
    assert ["memory_items", "40", "40"] in [line.split()[:3] for line in first.output.splitlines()]
    assert second.output.splitlines()[0] == "Was copied before: compared again, nothing copied"
    assert ["memory_items", "40", "0"] in [line.split()[:3] for line in second.output.splitlines()]


def test_a_rehearsal_says_so_and_leaves_the_target_without_a_table(command: Command, filled: Database, unborn: str):
    """--dry-run reads everything and writes nothing."""
    rehearsed = command("db", "copy", "--to", unborn, "--dry-run")

    assert rehearsed.output.startswith("Would copy;")
    assert migrations.current(unborn) is None


def test_what_differs_exits_1_and_is_named(command: Command, filled: Database, unborn: str):
    """A script must not go on with a copy that is not one."""
    command("db", "copy", "--to", unborn)
    with connected(unborn, OWNER) as connection:
        connection.execute("SET cmem.team_id = '*'")
        connection.execute("UPDATE agent_events SET event_type = 'other'")

    compared = command("db", "copy", "--to", unborn)

    assert compared.exit_code == 1
    assert "DIFFERS" in next(line for line in compared.output.splitlines() if line.startswith("agent_events"))
    assert "what differs was refused then, or written since" in compared.output


def test_the_servers_role_may_use_the_copy(command: Command, filled: Database, unborn: str):
    """Named by the option: it sees what is there, and owns nothing."""
    command("db", "copy", "--to", unborn, "--server-role", SERVER)

    with connected(unborn, SERVER) as connection:
        connection.execute("SET cmem.team_id = '*'")
        assert connection.execute("SELECT count(*) FROM memory_items").fetchone() == (40,)


@pytest.mark.parametrize("vectors", ["keep", "rebuild"])
def test_vectors_are_kept_where_the_same_chroma_server_serves_on(
    command: Command, filled: Database, unborn: str, monkeypatch: pytest.MonkeyPatch, vectors: str
):
    """That is so with CMEM_VECTORS=http, unless told otherwise."""
    monkeypatch.setenv("CMEM_VECTORS", "http")
    monkeypatch.setenv("CMEM_CHROMA_URL", "http://127.0.0.1:9")
    told = ("--vectors", "rebuild") if vectors == "rebuild" else ()

    report = json.loads(command("db", "copy", "--to", unborn, "--json", *told).output)

    assert (report["ok"], report["vectors"], "vector_outbox" in report["tables"]) == (True, vectors, vectors == "keep")


@pytest.mark.sqlite
def test_a_server_must_not_write_meanwhile_unless_one_moment_is_asked_for(
    command: Command, filled: Database, unborn: str
):
    """Else what it writes after the copy has begun would be lost."""
    with usage_lock.using(filled.url):
        refused = command("db", "copy", "--to", unborn)
        taken = command("db", "copy", "--to", unborn, "--snapshot")

    assert (refused.exit_code, refused.output) == (
        1,
        "Error: A server or another command uses this database: stop it first.\n",
    )
    assert migrations.current(unborn) == migrations.head()
    assert taken.exit_code == 0, taken.output


def test_somebody_elses_database_is_refused_in_one_line(command: Command, filled: Database, unborn: str):
    """Whatever the target is, nothing of it is changed."""
    command("db", "copy", "--to", unborn)
    command("teams", "create", "another")

    refused = command("db", "copy", "--to", unborn)

    assert refused.exit_code == 1
    assert "another database, or of this one as it was" in refused.output
    assert len(refused.output.splitlines()) == 1


@pytest.mark.parametrize("url", ["sqlite:////tmp/other.db", "mysql://x/y", "somewhere"])
def test_a_target_that_is_no_postgresql_is_refused(command: Command, filled: Database, url: str):
    """The line says how to write it."""
    refused = command("db", "copy", "--to", url)

    assert refused.exit_code == 1
    assert "postgresql+psycopg://" in refused.output
    assert len(refused.output.splitlines()) == 1


def test_a_server_that_does_not_answer_is_one_line(command: Command, filled: Database, tmp_path: Path):
    """Without the password."""
    refused = command("db", "copy", "--to", f"postgresql+psycopg://owner:hush@/cmem?host={tmp_path}")

    assert refused.exit_code == 1
    assert refused.output.startswith("Error: ")
    assert "hush" not in refused.output
    assert "Traceback" not in refused.output


def connected(url: str, role: str) -> psycopg.Connection:
    address = url.replace("postgresql+psycopg://", "postgresql://", 1).replace(f"//{OWNER}@", f"//{role}@", 1)
    return psycopg.connect(address, autocommit=True)
