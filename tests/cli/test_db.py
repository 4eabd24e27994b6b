"""`db`: migrations and the check, as scripts use them."""

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import Result
from sqlalchemy.exc import DBAPIError

from app.store.database import Database
from app.store.schema import migrations
from tests.serving import Home
from tests.stores import Stores

Command = Callable[..., Result]


def test_up_and_down_say_where_the_database_is(command: Command):
    """Each names the revision that then stands."""
    assert command("db", "downgrade", "0001").output == "at revision 0001\n"
    assert command("db", "upgrade", "0001").output.splitlines()[0] == "at revision 0001"
    assert command("db", "upgrade", "0002").output.splitlines()[0] == "at revision 0002"
    assert command("db", "upgrade").output.splitlines()[0] == f"at revision {migrations.head()}"


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


@pytest.fixture
def as_owner(stores: Stores, folder: Path) -> Callable[[str], None]:
    """Run a statement as somebody does who owns the tables."""

    def run(sql: str) -> None:
        with closing(Database(stores.owner_url(folder))) as database, database.write() as connection:
            connection.exec_driver_sql(sql)

    return run


def test_a_trigger_that_is_gone_is_named_and_exits_1(command: Command, stores: Stores, as_owner):
    """With the command that mends it."""
    as_owner(f"DROP TRIGGER trg_memory_items_fts_update{' ON memory_items' * (stores.dialect == 'postgresql')}")

    checked = command("db", "check")

    assert (checked.exit_code, "fts rebuild" in checked.output) == (1, True)


@pytest.mark.parametrize(
    "harm",
    [
        "DROP INDEX ix_memory_sources_memory_item_id",
        "DROP TABLE memory_sources",
        "ALTER TABLE teams ADD COLUMN strange TEXT",
    ],
)
def test_tables_that_are_not_those_of_the_models_exit_1(command: Command, as_owner, harm: str):
    """One line for each fault."""
    as_owner(harm)

    checked = command("db", "check")

    assert (checked.exit_code, "differs from the models" in checked.output) == (1, True)


def test_a_database_behind_the_code_is_a_fault_and_not_upgraded_by_the_check(command: Command):
    """Looking changes nothing."""
    command("db", "downgrade", "0001")

    assert "run `cmem-server db upgrade`" in command("db", "check").output
    assert json.loads(command("db", "current", "--json").output)["revision"] == "0001"


@pytest.mark.parametrize(
    "arguments", [("db", "upgrade"), ("projects", "list", "--team", "a"), ("fts", "check"), ("serve",)]
)
def test_every_command_refuses_a_newer_database_in_one_line(command: Command, as_owner, arguments: tuple[str, ...]):
    """Both versions are named, and the exit is not zero."""
    as_owner("UPDATE alembic_version SET version_num = '9999'")

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


@pytest.mark.sqlite
def test_a_file_that_is_no_database_is_one_line(command: Command, folder: Path):
    """Damage ends without a stack."""
    (folder / "cmem.db").write_bytes(b"not a database" * 1000)

    for arguments in (("db", "check"), ("db", "current"), ("db", "upgrade"), ("fts", "check")):
        refused = command(*arguments)
        assert (refused.exit_code, len(refused.output.splitlines())) == (1, 1), refused.output
        assert refused.output.startswith("Error: ")


@pytest.fixture
def unmade(stores: Stores, tmp_path: Path) -> Iterator[Home]:
    """A database without a table, and both roles."""
    owner = stores.nothing(tmp_path)
    yield Home(tmp_path, {"database_url": stores.url(tmp_path), "database_admin_url": owner})
    stores.forget(tmp_path)


@pytest.mark.postgresql
def test_an_upgrade_lets_the_servers_role_in(unmade: Home):
    """It serves then; the owner's role is the only one that makes tables."""
    first, again = unmade.run("db", "upgrade"), unmade.run("db", "upgrade")
    with unmade.serving() as started:
        assert "KEY" in started.exported

    said = f"at revision {migrations.head()}\nthe role cmem_server may use it\n"
    assert (first.stdout, again.stdout) == (said, said)
    with unmade.database() as database, pytest.raises(DBAPIError, match="denied"), database.write() as connection:
        connection.exec_driver_sql("CREATE TABLE own (id INTEGER)")


@pytest.mark.postgresql
def test_an_upgrade_of_what_is_at_head_accepts_no_damage(command: Command, as_owner):
    """What somebody has dropped stays a fault."""
    as_owner("DROP TRIGGER trg_memory_items_fts_update ON memory_items")

    command("db", "upgrade")

    assert command("db", "check").exit_code == 1


@pytest.mark.postgresql
@pytest.mark.parametrize("revision", [None, "0001"])
def test_a_server_does_not_start_on_a_database_that_nobody_upgraded(unmade: Home, revision: str | None):
    """One line says what to run: its role may not do it."""
    if revision is not None:
        unmade.run("db", "upgrade", revision)

    refused = unmade.run("serve", "--port", "0")

    assert (refused.returncode, refused.stdout) == (1, "")
    assert refused.stderr == (
        f"Error: The database is at revision {revision}, needed is {migrations.head()}:"
        " run `cmem-server db upgrade` first.\n"
    )


def test_a_database_server_that_does_not_answer_is_one_line(tmp_path: Path):
    """With where it was looked for, and without the password."""
    nowhere = Home(tmp_path, {"database_url": "postgresql+psycopg://cmem_server:hidden@127.0.0.1:1/cmem"})

    for arguments in (("serve", "--port", "0"), ("db", "upgrade"), ("db", "current")):
        refused = nowhere.run(*arguments)
        assert (refused.returncode, len(refused.stderr.splitlines())) == (1, 1), refused.stderr
        assert '"127.0.0.1", port 1' in refused.stderr
        assert "hidden" not in refused.stderr
