"""`db`: migrations and the check, as scripts use them."""

import json
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result

from app.store import migrations

Command = Callable[..., Result]


def test_up_and_down_say_where_the_database_is(command: Command):
    """Each names the revision that then stands."""
    assert command("db", "downgrade", "0001").output == "at revision 0001\n"
    assert command("db", "upgrade", "0002").output == "at revision 0002\n"
    assert command("db", "upgrade").output == f"at revision {migrations.head()}\n"


def test_current_says_both_revisions(command: Command):
    """That of the database, and the newest that this version knows."""
    command("db", "downgrade", "0001")

    shown = json.loads(command("db", "current", "--json").output)

    assert shown == {"revision": "0001", "head": migrations.head()}


def test_a_whole_database_checks_clean(command: Command):
    """Exit 0 and one line; as JSON an empty list."""
    checked, as_json = command("db", "check"), command("db", "check", "--json")

    assert (checked.exit_code, checked.output) == (0, "the database is whole\n")
    assert json.loads(as_json.output) == {"ok": True, "faults": []}


@pytest.mark.parametrize(
    ("harm", "said"),
    [
        ("DROP TRIGGER trg_memory_items_fts_update", "fts rebuild"),
        ("DROP INDEX ix_memory_sources_memory_item_id", "differs from the models"),
        ("DROP TABLE memory_sources", "differs from the models"),
        ("ALTER TABLE teams ADD COLUMN strange TEXT", "differs from the models"),
    ],
)
def test_what_is_wrong_is_named_and_exits_1(command: Command, folder: Path, harm: str, said: str):
    """One line for each fault."""
    with closing(sqlite3.connect(folder / "cmem.db")) as connection:
        connection.execute(harm)

    checked = command("db", "check")

    assert checked.exit_code == 1
    assert said in checked.output


def test_a_database_behind_the_code_is_a_fault_and_not_upgraded_by_the_check(command: Command):
    """Looking changes nothing."""
    command("db", "downgrade", "0001")

    assert "run `cmem-server db upgrade`" in command("db", "check").output
    assert json.loads(command("db", "current", "--json").output)["revision"] == "0001"


@pytest.mark.parametrize(
    "arguments", [("db", "upgrade"), ("projects", "list", "--team", "a"), ("fts", "check"), ("serve",)]
)
def test_every_command_refuses_a_newer_database_in_one_line(command: Command, folder: Path, arguments: tuple[str, ...]):
    """Both versions are named, and the exit is not zero."""
    with closing(sqlite3.connect(folder / "cmem.db", isolation_level=None)) as connection:
        connection.execute("UPDATE alembic_version SET version_num = '9999'")

    refused = command(*arguments)

    assert refused.exit_code == 1
    assert "9999" in refused.output
    assert migrations.head() in refused.output
    assert len(refused.output.splitlines()) == 1


@pytest.mark.parametrize("arguments", [("db", "upgrade", "7777"), ("db", "downgrade", "7777")])
def test_an_unknown_revision_is_one_line(command: Command, arguments: tuple[str, ...]):
    """A typing error ends without a stack."""
    refused = command(*arguments)

    assert refused.exit_code == 1
    assert refused.output.startswith("Error: ")
    assert len(refused.output.splitlines()) == 1


def test_a_file_that_is_no_database_is_one_line(command: Command, folder: Path):
    """Damage ends without a stack."""
    (folder / "cmem.db").write_bytes(b"not a database" * 1000)

    for arguments in (("db", "check"), ("db", "current"), ("db", "upgrade"), ("fts", "check")):
        refused = command(*arguments)
        assert (refused.exit_code, len(refused.output.splitlines())) == (1, 1), refused.output
        assert refused.output.startswith("Error: ")
